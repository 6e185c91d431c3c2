// What decoders of messages between nodes check field by field.
// INVALID_ARGUMENT names the field, its limit and what was found.

#ifndef RINGKV_SERVER_CODEC_FIELD_CHECKS_H_
#define RINGKV_SERVER_CODEC_FIELD_CHECKS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status.h"

namespace ringkv::codec {

inline absl::Status Invalid(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
}

inline absl::Status CheckSize(absl::string_view field, size_t size,
                              size_t max) {
  if (size <= max) return absl::OkStatus();
  return Invalid(field,
                 absl::StrCat(size, " bytes, at most ", max, " are allowed"));
}

inline absl::Status CheckCount(absl::string_view field, int count, size_t max) {
  if (count >= 0 && static_cast<size_t>(count) <= max) return absl::OkStatus();
  return Invalid(
      field, absl::StrCat(count, " entries, at most ", max, " are allowed"));
}

// Not inside a UTF-8 sequence: a string field that is not valid UTF-8 makes the
// receiver refuse the whole message.
inline std::string Cut(absl::string_view text, size_t max) {
  if (text.size() > max) {
    while (max > 0 && (static_cast<uint8_t>(text[max]) & 0xc0) == 0x80) --max;
  }
  return std::string(text.substr(0, max));
}

template <class Id>
std::string IdBytes(const Id& id) {
  return id.IsNone() ? std::string() : id.ToBytes();
}

// An absent id is "none".
template <class Id>
absl::StatusOr<Id> IdOf(absl::string_view field, absl::string_view bytes) {
  if (bytes.empty()) return Id();
  absl::StatusOr<Id> id = Id::FromBytes(bytes);
  if (!id.ok()) return Invalid(field, id.status().message());
  return id;
}

template <class Id>
absl::StatusOr<Id> SomeIdOf(absl::string_view field, absl::string_view bytes) {
  ASSIGN_OR_RETURN(const Id id, IdOf<Id>(field, bytes));
  if (id.IsNone()) return Invalid(field, "is missing");
  return id;
}

}  // namespace ringkv::codec

#endif  // RINGKV_SERVER_CODEC_FIELD_CHECKS_H_
