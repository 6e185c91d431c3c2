#include "tests/sim/message_note.h"

#include <type_traits>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/coordinator/common.h"
#include "storage/version/object.h"
#include "tests/sim/history.h"

namespace ringkv::sim {
namespace {

std::string SpaceName(const Ring& ring, KeyspaceId id) {
  const Keyspace* keyspace = ring.FindKeyspace(id);
  return keyspace == nullptr ? absl::StrCat("keyspace ", ToInt(id))
                             : keyspace->name;
}

std::string ValueName(absl::string_view value) {
  const OperationId writer = WriterOf(value);
  return writer == kNoOperation ? "?" : absl::StrCat("#", writer);
}

std::string ObjectText(absl::string_view encoded) {
  const absl::StatusOr<Object> object = DecodeObject(encoded);
  if (!object.ok()) return "[damaged]";
  if (object->siblings.empty()) return "[tombstone]";
  std::string text = "[";
  for (const Sibling& sibling : object->siblings) {
    absl::StrAppend(&text, text.size() == 1 ? "" : " ",
                    ValueName(sibling.value));
  }
  return absl::StrCat(text, "]");
}

std::string HintText(const std::vector<NodeNumber>& targets) {
  if (targets.empty()) return "";
  std::string text = ", hint for member";
  for (const NodeNumber target : targets) {
    absl::StrAppend(&text, " ", ToInt(target));
  }
  return text;
}

const char* NameOf(ReadKind kind) {
  switch (kind) {
    case ReadKind::kFull:
      return "read";
    case ReadKind::kDigest:
      return "read digest";
    case ReadKind::kClock:
      return "read clock";
  }
  return "?";
}

const char* NameOf(WritePurpose purpose) {
  switch (purpose) {
    case WritePurpose::kPut:
      return "write";
    case WritePurpose::kRepair:
      return "repair";
    case WritePurpose::kHandoff:
      return "handoff";
  }
  return "?";
}

// The call that a node hands on, as its client made it.
void Describe(const ClientCall& call, MessageNote& note) {
  std::visit(
      [&note](const auto& call) {
        using Call = std::decay_t<decltype(call)>;
        const std::string space =
            call.keyspace.empty() ? "default" : call.keyspace;
        if constexpr (std::is_same_v<Call, ScanCall>) {
          note.text = absl::StrCat("forward scan ", space);
        } else {
          note.key = absl::StrCat(space, "/", call.key);
          note.text = absl::StrCat("forward get ", note.key);
          if constexpr (std::is_same_v<Call, PutCall>) {
            note.text = call.is_delete
                            ? absl::StrCat("forward delete ", note.key)
                            : absl::StrCat("forward put ", note.key, " [",
                                           ValueName(call.value), "]");
          }
        }
      },
      call);
}

std::string Describe(const ReadReply& reply) {
  if (reply.code != ReplyCode::kOk) {
    return absl::StrCat("read-reply: ", ReplyCodeText(reply.code));
  }
  if (!reply.found) return "read-reply: nothing";
  if (reply.kind == ReadKind::kDigest) {
    return absl::StrCat("read-reply: digest ", absl::Hex(reply.digest));
  }
  return absl::StrCat(
      "read-reply: ",
      reply.kind == ReadKind::kClock ? "clock" : ObjectText(reply.object),
      HintText(reply.hint_for));
}

std::string Describe(const ForwardReply& reply) {
  if (reply.code != ReplyCode::kOk) {
    return absl::StrCat("forward-reply: ", ReplyCodeText(reply.code));
  }
  if (!reply.answer.status.ok()) {
    return absl::StrCat("forward-reply: ", reply.answer.status.ToString());
  }
  return "forward-reply: ok";
}

}  // namespace

MessageNote NoteOf(const DataMessage& message, const Ring& ring) {
  MessageNote note;
  std::visit(
      [&](const auto& body) {
        using Body = std::decay_t<decltype(body)>;
        note.operation = body.operation;
        if constexpr (std::is_same_v<Body, ReadRequest>) {
          note.key =
              absl::StrCat(SpaceName(ring, body.keyspace), "/", body.key);
          note.text = absl::StrCat(NameOf(body.kind), " ", note.key,
                                   body.from_hints ? " from hints" : "");
        } else if constexpr (std::is_same_v<Body, WriteRequest>) {
          note.key =
              absl::StrCat(SpaceName(ring, body.keyspace), "/", body.key);
          note.text =
              absl::StrCat(NameOf(body.purpose), " ", note.key, " ",
                           ObjectText(body.object), HintText(body.hint_for));
        } else if constexpr (std::is_same_v<Body, ForwardRequest>) {
          Describe(body.call, note);
        } else if constexpr (std::is_same_v<Body, RangeRequest>) {
          note.text = absl::StrCat("range ", SpaceName(ring, body.keyspace));
        } else if constexpr (std::is_same_v<Body, StreamRequest>) {
          note.text = absl::StrCat(
              "stream ", body.kind == StreamKind::kDigests ? "digests of " : "",
              SpaceName(ring, body.keyspace), " from ",
              absl::Hex(body.from.token, absl::kZeroPad16), " to ",
              absl::Hex(body.last, absl::kZeroPad16));
        } else {
          note.is_reply = true;
          if constexpr (std::is_same_v<Body, WriteReply>) {
            note.text = absl::StrCat("write-reply: ", ReplyCodeText(body.code));
          } else if constexpr (std::is_same_v<Body, ReadReply> ||
                               std::is_same_v<Body, ForwardReply>) {
            note.text = Describe(body);
          } else if constexpr (std::is_same_v<Body, StreamChunk>) {
            note.text = absl::StrCat("stream-chunk: ", ReplyCodeText(body.code),
                                     ", ", body.items.size(), " entries",
                                     body.complete ? ", complete" : "");
          } else {
            note.text =
                absl::StrCat("range-reply: ", body.items.size(), " entries");
          }
        }
      },
      message.body);
  return note;
}

}  // namespace ringkv::sim
