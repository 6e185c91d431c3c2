#include "server/rpc/router.h"

#include <utility>

#include "base/token.h"

namespace ringkv {

Router::Router(std::vector<LoopThread*> loops) : loops_(std::move(loops)) {}

int Router::ShardOf(const ClientCall& call) {
  const std::string* key = nullptr;
  if (const auto* get = std::get_if<GetCall>(&call)) {
    key = &get->key;
  } else if (const auto* put = std::get_if<PutCall>(&call)) {
    key = &put->key;
  } else if (const auto* locate = std::get_if<LocateCall>(&call)) {
    key = &locate->key;
  }
  if (key == nullptr) {
    return static_cast<int>(next_scan_.fetch_add(1, std::memory_order_relaxed) %
                            loops_.size());
  }
  return ringkv::ShardOf(TokenOf(*key), shards());
}

absl::Status Router::Post(int shard, PostedCall&& call) {
  if (loops_[shard]->Offer(std::move(call))) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      "this node has too much to do; nothing was done, try again later");
}

void Router::Cancel(int shard, CallId id) { loops_[shard]->Cancel(id, 1); }

void Router::CancelRange(CallId first, uint64_t count) {
  for (LoopThread* loop : loops_) loop->Cancel(first, count);
}

void Router::CancelAll(uint64_t sink_serial) {
  for (LoopThread* loop : loops_) loop->CancelAll(sink_serial);
}

void Router::Deliver(NodeNumber from, std::vector<DataMessage>&& messages) {
  for (DataMessage& message : messages) {
    LoopThread* loop = loops_[ShardOf(message)];
    loop->Offer(MessageArrived{from, std::move(message)});
  }
}

int Router::ShardOf(const DataMessage& message) const {
  struct Visitor {
    int shards;
    int OfKey(const std::string& key) const {
      return ringkv::ShardOf(TokenOf(key), shards);
    }
    // A reply carries the number of the shard that asked; what does not is
    // answered by nobody's question and dropped by any shard.
    int OfOperation(uint64_t operation) const {
      return static_cast<int>((operation >> kOperationShardShift) %
                              static_cast<unsigned>(shards));
    }
    int operator()(const ReadRequest& m) const { return OfKey(m.key); }
    int operator()(const WriteRequest& m) const { return OfKey(m.key); }
    int operator()(const ForwardRequest& m) const {
      if (const auto* get = std::get_if<GetCall>(&m.call)) {
        return OfKey(get->key);
      }
      if (const auto* put = std::get_if<PutCall>(&m.call)) {
        return OfKey(put->key);
      }
      if (const auto* locate = std::get_if<LocateCall>(&m.call)) {
        return OfKey(locate->key);
      }
      return OfOperation(m.operation);
    }
    int operator()(const RangeRequest& m) const {
      return m.from_start ? 0 : ringkv::ShardOf(m.after_token, shards);
    }
    int operator()(const StreamRequest& m) const {
      return ringkv::ShardOf(m.from.token, shards);
    }
    int operator()(const StreamChunk& m) const {
      return OfOperation(m.operation);
    }
    int operator()(const ReadReply& m) const {
      return OfOperation(m.operation);
    }
    int operator()(const WriteReply& m) const {
      return OfOperation(m.operation);
    }
    int operator()(const ForwardReply& m) const {
      return OfOperation(m.operation);
    }
    int operator()(const RangeReply& m) const {
      return OfOperation(m.operation);
    }
  };
  return std::visit(Visitor{shards()}, message.body);
}

}  // namespace ringkv
