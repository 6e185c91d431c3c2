#include "client/operations.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringkv {
namespace {

// A page ends with the message that brings it above this.
constexpr size_t kPageBytes = 4 << 20;

v1::Quorum ToProto(CallQuorum quorum) {
  switch (quorum) {
    case CallQuorum::kSloppy:
      return v1::QUORUM_SLOPPY;
    case CallQuorum::kStrict:
      return v1::QUORUM_STRICT;
    case CallQuorum::kDefault:
      break;
  }
  return v1::QUORUM_DEFAULT;
}

std::string Bytes(absl::string_view view) {
  return std::string(view.data(), view.size());
}

template <class Siblings>
std::vector<SiblingValue> FromSiblings(Siblings& siblings) {
  std::vector<SiblingValue> values;
  values.reserve(static_cast<size_t>(siblings.size()));
  for (v1::Sibling& sibling : siblings) {
    SiblingValue value;
    value.value = std::move(*sibling.mutable_value());
    value.hlc_timestamp = sibling.hlc_timestamp();
    if (sibling.has_expires_at()) {
      value.expires_at = absl::FromUnixSeconds(sibling.expires_at().seconds()) +
                         absl::Nanoseconds(sibling.expires_at().nanos());
    }
    values.push_back(std::move(value));
  }
  std::stable_sort(values.begin(), values.end(),
                   [](const SiblingValue& a, const SiblingValue& b) {
                     return a.hlc_timestamp > b.hlc_timestamp;
                   });
  return values;
}

template <class Response>
WriteResult FromWrite(Response& response) {
  WriteResult result;
  if (response.has_context()) {
    result.context = std::move(*response.mutable_context());
  }
  result.unresolved_siblings = response.unresolved_siblings();
  result.replica_acks = response.replica_acks();
  result.stand_in_acks = response.stand_in_acks();
  return result;
}

class ScanTry final : public Try {
 public:
  explicit ScanTry(const v1::ScanRequest& request) : request_(request) {}

  void Send(const Node::Connection& connection,
            grpc::CompletionQueue* queue) override {
    reader_ = connection.stub->PrepareAsyncScan(&context, request_, queue);
    reader_->StartCall(this);
  }

  bool Step(bool ok) override {
    switch (stage_) {
      case Stage::kStarting:
        stage_ = ok ? Stage::kReading : Stage::kFinishing;
        break;
      case Stage::kReading:
        if (!ok) {
          stage_ = Stage::kFinishing;
          break;
        }
        for (v1::ScanEntry& entry : *response_.mutable_entries()) {
          bytes_ += entry.ByteSizeLong();
          page.entries.push_back(FromScanEntry(entry));
        }
        page.cursor = std::move(*response_.mutable_cursor());
        if (page.cursor.empty() || bytes_ >= kPageBytes) {
          // What was read stands, however the stream ends.
          whole_ = true;
          if (bytes_ >= kPageBytes) context.TryCancel();
          stage_ = Stage::kFinishing;
        }
        break;
      case Stage::kFinishing:
        if (whole_) status = grpc::Status::OK;
        return true;
    }
    if (stage_ == Stage::kReading) {
      reader_->Read(&response_, this);
    } else {
      reader_->Finish(&status, this);
    }
    return false;
  }

  Client::ScanPage page;

 private:
  enum class Stage { kStarting, kReading, kFinishing };

  const v1::ScanRequest& request_;
  std::unique_ptr<grpc::ClientAsyncReader<v1::ScanResponse>> reader_;
  v1::ScanResponse response_;
  size_t bytes_ = 0;
  bool whole_ = false;
  Stage stage_ = Stage::kStarting;
};

}  // namespace

absl::Status CheckGet(const GetOptions& options) {
  if (options.deadline < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the deadline is ", absl::FormatDuration(options.deadline),
                     "; it must be above 0"));
  }
  return absl::OkStatus();
}

absl::Status CheckPut(absl::string_view key, absl::string_view value,
                      const PutOptions& options) {
  if (options.ttl < absl::ZeroDuration() ||
      (options.ttl > absl::ZeroDuration() &&
       options.ttl < absl::Milliseconds(1))) {
    return absl::InvalidArgumentError(
        absl::StrCat("the time to live is ", absl::FormatDuration(options.ttl),
                     "; it must be at least 1ms, or 0 for ever"));
  }
  const size_t bytes =
      key.size() + value.size() +
      (options.context.has_value() ? options.context->size() : 0) + 1024;
  if (bytes > kSendBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("key, value and context have ", bytes - 1024,
                     " bytes; a message may have ", kSendBytesMax,
                     ", and a value 1 MiB by default"));
  }
  return absl::OkStatus();
}

v1::GetRequest ToRequest(absl::string_view key, const std::string& keyspace,
                         const GetOptions& options) {
  v1::GetRequest request;
  request.set_keyspace(keyspace);
  request.set_key(Bytes(key));
  request.set_r(options.r);
  request.set_quorum(ToProto(options.quorum));
  request.set_max_answer_bytes(options.max_answer_bytes);
  return request;
}

v1::PutRequest ToRequest(absl::string_view key, absl::string_view value,
                         const std::string& keyspace,
                         const PutOptions& options) {
  v1::PutRequest request;
  request.set_keyspace(keyspace);
  request.set_key(Bytes(key));
  request.set_value(Bytes(value));
  if (options.context.has_value()) request.set_context(*options.context);
  request.set_blind(options.blind);
  request.set_w(options.w);
  request.set_quorum(ToProto(options.quorum));
  if (options.ttl > absl::ZeroDuration() &&
      options.ttl != absl::InfiniteDuration()) {
    const int64_t seconds = absl::ToInt64Seconds(options.ttl);
    request.mutable_ttl()->set_seconds(seconds);
    request.mutable_ttl()->set_nanos(static_cast<int32_t>(
        absl::ToInt64Nanoseconds(options.ttl - absl::Seconds(seconds))));
  }
  return request;
}

v1::DeleteRequest ToRequest(absl::string_view key, const std::string& keyspace,
                            const DeleteOptions& options) {
  v1::DeleteRequest request;
  request.set_keyspace(keyspace);
  request.set_key(Bytes(key));
  if (options.context.has_value()) request.set_context(*options.context);
  request.set_w(options.w);
  request.set_quorum(ToProto(options.quorum));
  return request;
}

GetResult FromResponse(v1::GetResponse& response) {
  GetResult result;
  result.siblings = FromSiblings(*response.mutable_siblings());
  if (response.has_context()) {
    result.context = std::move(*response.mutable_context());
  }
  return result;
}

WriteResult FromResponse(v1::PutResponse& response) {
  return FromWrite(response);
}

WriteResult FromResponse(v1::DeleteResponse& response) {
  return FromWrite(response);
}

ScannedEntry FromScanEntry(v1::ScanEntry& entry) {
  ScannedEntry scanned;
  scanned.key = std::move(*entry.mutable_key());
  scanned.siblings = FromSiblings(*entry.mutable_siblings());
  if (!entry.context().empty()) {
    scanned.context = std::move(*entry.mutable_context());
  }
  return scanned;
}

void SetMark(const RepeatMark& mark, v1::RequestId* id) {
  id->set_age_ms(mark.age_ms);
  id->set_coordinator_start_id(mark.coordinator_start_id);
}

std::unique_ptr<Try> ScanCallRun::NewTry(const RepeatMark& mark) {
  return std::make_unique<ScanTry>(request_);
}

void ScanCallRun::Deliver(const absl::Status& status, Try* winner) {
  Client::ScanCallback done = std::move(done_);
  if (!status.ok()) {
    done(status);
    return;
  }
  done(std::move(static_cast<ScanTry*>(winner)->page));
}

}  // namespace ringkv
