// The HTTP port: /metrics for Prometheus, /healthz and /readyz for whoever
// starts and stops nodes.

#ifndef RINGKV_SERVER_RPC_HTTP_SERVER_H_
#define RINGKV_SERVER_RPC_HTTP_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

struct mg_context;
struct mg_connection;

namespace ringkv {

class HttpServer {
 public:
  struct Page {
    int code = 200;
    std::string text;
  };
  // Called on the server's threads, several at once.
  struct Pages {
    std::function<Page()> metrics;
    std::function<Page()> healthz;
    std::function<Page()> readyz;
  };
  // Threads that serve requests.
  static constexpr int kThreads = 8;

  // Listens on host:port. UNAVAILABLE if that cannot be had.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      const std::string& address, Pages pages);
  // Waits for requests that run.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

 private:
  struct Handler {
    std::function<Page()> page;
    std::string type;
  };
  explicit HttpServer(Pages pages);
  static int Handle(mg_connection* connection, void* handler);

  Handler metrics_, healthz_, readyz_;
  mg_context* context_ = nullptr;
  // Where it is reached from here.
  std::string host_;
  int port_ = 0;
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_RPC_HTTP_SERVER_H_
