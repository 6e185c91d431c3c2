// Where answers of client calls go: the reactor of a gRPC call.

#ifndef RINGKV_SERVER_RPC_CALL_SINK_H_
#define RINGKV_SERVER_RPC_CALL_SINK_H_

#include <cstdint>

#include "server/messages.h"

namespace ringkv {

// One sink may have many calls under way, in several loops. It lives until each
// has been answered, and each is answered exactly once.
class CallSink {
 public:
  CallSink();
  virtual ~CallSink() = default;
  CallSink(const CallSink&) = delete;
  CallSink& operator=(const CallSink&) = delete;

  // Unlike its address, never used again in this run.
  uint64_t serial() const { return serial_; }

  // `tag` and `kind` are those of the call's CallHandle. On a loop's thread. If
  // it returns true, the loop calls Flush() after all answers of its turn, once
  // for each such return, and the sink lives until then.
  virtual bool OnAnswer(uint64_t tag, uint8_t kind, ClientAnswer&& answer) = 0;
  virtual void Flush() {}

 private:
  const uint64_t serial_;
};

struct CallHandle {
  CallSink* sink = nullptr;
  uint64_t tag = 0;
  uint8_t kind = 0;
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_RPC_CALL_SINK_H_
