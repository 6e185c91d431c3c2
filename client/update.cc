// Update: read, merge, write with the context of the read, again after a
// conflict or an unknown outcome.
//
//   reading ──> merged ──> writing ──> alone: done
//      ^  no context yet: blind           │
//      └────── pause <── other siblings, unknown, or not done

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "client/client_impl.h"

namespace ringkv {
namespace {

class UpdateRun : public std::enable_shared_from_this<UpdateRun> {
 public:
  UpdateRun(ClientImpl& client, absl::string_view key, MergeFunction merge,
            const UpdateOptions& options, Client::UpdateCallback done)
      : client_(client),
        key_(key.data(), key.size()),
        merge_(std::move(merge)),
        options_(options),
        deadline_(client.DeadlineOf(options.deadline)),
        done_(std::move(done)) {}

  void Read() {
    ++result_.rounds;
    GetOptions get;
    get.keyspace = options_.keyspace;
    get.r = options_.r;
    get.quorum = options_.quorum;
    // All siblings are needed, however large: a partial merge would lose some.
    get.max_answer_bytes = kReceiveBytesMax - (1 << 20);
    client_.Get(key_, get, deadline_,
                [self = shared_from_this()](absl::StatusOr<GetResult> got) {
                  self->OnRead(std::move(got));
                });
  }

 private:
  void OnRead(absl::StatusOr<GetResult> got) {
    if (!got.ok()) {
      // What was written before stays unknown, whatever the read died of.
      absl::Status status = got.status();
      if (unknown_) MarkOutcomeUnknown(status);
      End(stored_ ? absl::OkStatus() : status);
      return;
    }
    std::vector<std::string> values;
    values.reserve(got->siblings.size());
    for (SiblingValue& sibling : got->siblings) {
      values.push_back(std::move(sibling.value));
    }
    result_.value = merge_(values);
    const auto written =
        [self = shared_from_this()](absl::StatusOr<WriteResult> result) {
          self->OnWritten(std::move(result));
        };
    if (result_.value.has_value()) {
      PutOptions put;
      put.keyspace = options_.keyspace;
      put.w = options_.w;
      put.quorum = options_.quorum;
      put.ttl = options_.ttl;
      put.context = std::move(got->context);
      // Nothing was ever known of the key. A plain put would replace what
      // another writer stores right now; a blind one becomes its sibling, and
      // both are merged in the next round.
      put.blind = !put.context.has_value();
      client_.Put(key_, *result_.value, put, deadline_, written);
      return;
    }
    if (values.empty() && !unknown_) {
      result_.context = std::move(got->context);
      result_.unresolved_siblings = 0;
      End(absl::OkStatus());
      return;
    }
    DeleteOptions remove;
    remove.keyspace = options_.keyspace;
    remove.w = options_.w;
    remove.quorum = options_.quorum;
    remove.context = std::move(got->context);
    client_.Delete(key_, remove, deadline_, written);
  }

  void OnWritten(absl::StatusOr<WriteResult> result) {
    if (result.ok()) {
      stored_ = true;
      unknown_ = false;
      result_.context = std::move(result->context);
      result_.unresolved_siblings = result->unresolved_siblings;
      if (result_.unresolved_siblings == 0) {
        End(absl::OkStatus());
        return;
      }
      Again(absl::OkStatus());
      return;
    }
    stored_ = false;
    if (IsOutcomeUnknown(result.status())) {
      unknown_ = true;
      Again(result.status());
      return;
    }
    absl::Status status = result.status();
    if (unknown_) MarkOutcomeUnknown(status);
    End(status);
  }

  // Reads again after a pause; ends with `status` if no time is left.
  void Again(const absl::Status& status) {
    const ClientOptions& options = client_.options();
    const absl::Duration pause =
        FullJitter(options.backoff_base, options.backoff_max,
                   result_.rounds - 1, client_.view().RandomDouble());
    if (Now() + pause >= deadline_ || !client_.io().Begin(TimerGuard())) {
      End(status);
      return;
    }
    client_.io().timers().At(
        Now() + pause,
        [self = shared_from_this(), guard = guard_] { guard->Fire(); });
  }

  void End(const absl::Status& status) {
    Client::UpdateCallback done = std::move(done_);
    if (!status.ok()) {
      done(status);
    } else {
      done(std::move(result_));
    }
  }

  // Keeps Stop() from dropping the pause without an end.
  class Guard final : public Activity {
   public:
    explicit Guard(std::shared_ptr<UpdateRun> run) : run_(std::move(run)) {}
    void Fire() { Finish(/*cancelled=*/false); }
    void Cancel() override { Finish(/*cancelled=*/true); }

   private:
    void Finish(bool cancelled) {
      if (finished_.exchange(true)) return;
      const std::shared_ptr<UpdateRun> run = std::move(run_);
      if (cancelled) {
        absl::Status status = absl::CancelledError("the client is closing");
        if (run->unknown_) MarkOutcomeUnknown(status);
        run->End(run->stored_ ? absl::OkStatus() : status);
      } else {
        run->Read();
      }
      run->client_.io().End(this);
    }

    std::shared_ptr<UpdateRun> run_;
    std::atomic<bool> finished_{false};
  };

  std::shared_ptr<Guard> TimerGuard() {
    guard_ = std::make_shared<Guard>(shared_from_this());
    return guard_;
  }

  ClientImpl& client_;
  const std::string key_;
  const MergeFunction merge_;
  const UpdateOptions options_;
  const Instant deadline_;
  Client::UpdateCallback done_;
  UpdateResult result_;
  bool stored_ = false;   // the last write was acknowledged
  bool unknown_ = false;  // a write's outcome was unknown, and none followed
  std::shared_ptr<Guard> guard_;
};

}  // namespace

void ClientImpl::Update(absl::string_view key, MergeFunction merge,
                        const UpdateOptions& options,
                        Client::UpdateCallback done) {
  std::make_shared<UpdateRun>(*this, key, std::move(merge), options,
                              std::move(done))
      ->Read();
}

}  // namespace ringkv
