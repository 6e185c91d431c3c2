#include "server/rpc/http_server.h"

#include <civetweb.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/rpc/config.h"

namespace ringkv {

HttpServer::HttpServer(Pages pages)
    : metrics_{std::move(pages.metrics), "text/plain; version=0.0.4"},
      healthz_{std::move(pages.healthz), "text/plain"},
      readyz_{std::move(pages.readyz), "text/plain"} {}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    const std::string& address, Pages pages) {
  ASSIGN_OR_RETURN(const HostPort listen, ParseHostPort(address));
  auto server = absl::WrapUnique(new HttpServer(std::move(pages)));
  server->port_ = listen.port;
  server->host_ = listen.host == "0.0.0.0" ? "127.0.0.1"
                  : listen.host == "::"    ? "::1"
                                           : listen.host;
  const std::string threads = absl::StrCat(kThreads);
  const char* options[] = {"listening_ports",
                           address.c_str(),
                           "num_threads",
                           threads.c_str(),
                           "request_timeout_ms",
                           "2000",
                           "keep_alive_timeout_ms",
                           "500",
                           nullptr};
  mg_callbacks callbacks;
  std::memset(&callbacks, 0, sizeof(callbacks));
  // Its own words go nowhere; what matters comes back as a null context.
  callbacks.log_message = [](const mg_connection*, const char*) { return 1; };
  server->context_ = mg_start(&callbacks, nullptr, options);
  if (server->context_ == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address, " for HTTP"));
  }
  mg_set_request_handler(server->context_, "/metrics$", &Handle,
                         &server->metrics_);
  mg_set_request_handler(server->context_, "/healthz$", &Handle,
                         &server->healthz_);
  mg_set_request_handler(server->context_, "/readyz$", &Handle,
                         &server->readyz_);
  return server;
}

HttpServer::~HttpServer() {
  if (context_ == nullptr) return;
  // The accepting thread looks at the stop flag only when a connection comes or
  // two seconds have passed: bring it connections until it has seen the flag.
  std::atomic<bool> stopped{false};
  std::thread stopper([this, &stopped] {
    mg_stop(context_);
    stopped = true;
  });
  while (!stopped) {
    char error[64];
    mg_connection* connection = mg_connect_client(
        host_.c_str(), port_, /*use_ssl=*/0, error, sizeof(error));
    if (connection != nullptr) mg_close_connection(connection);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  stopper.join();
}

int HttpServer::Handle(mg_connection* connection, void* handler) {
  const Handler& chosen = *static_cast<const Handler*>(handler);
  const char* method = mg_get_request_info(connection)->request_method;
  const bool head = std::strcmp(method, "HEAD") == 0;
  if (!head && std::strcmp(method, "GET") != 0) {
    mg_send_http_error(connection, 405, "only GET and HEAD");
    return 405;
  }
  const Page page = chosen.page();
  mg_printf(connection,
            "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
            "Connection: close\r\n\r\n",
            page.code, mg_get_response_code_text(connection, page.code),
            chosen.type.c_str(), page.text.size());
  if (!head) mg_write(connection, page.text.data(), page.text.size());
  return page.code;
}

}  // namespace ringkv
