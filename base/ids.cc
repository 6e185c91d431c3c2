#include "base/ids.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/coding.h"

namespace ringkv {

template <class Tag>
std::string Id128<Tag>::ToString() const {
  return absl::StrCat(absl::Hex(high, absl::kZeroPad16),
                      absl::Hex(low, absl::kZeroPad16));
}

template <class Tag>
absl::StatusOr<Id128<Tag>> Id128<Tag>::Parse(absl::string_view text) {
  Id128 id;
  const auto is_hex = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') ||
           (c >= 'A' && c <= 'F');
  };
  bool valid = text.size() == 32;
  for (char c : text) valid = valid && is_hex(c);
  if (!valid || !absl::SimpleHexAtoi(text.substr(0, 16), &id.high) ||
      !absl::SimpleHexAtoi(text.substr(16), &id.low)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an id is 32 hexadecimal digits, got ", text.size(), " characters"));
  }
  return id;
}

template <class Tag>
std::string Id128<Tag>::ToBytes() const {
  std::string bytes;
  AppendBigEndian64(bytes, high);
  AppendBigEndian64(bytes, low);
  return bytes;
}

template <class Tag>
absl::StatusOr<Id128<Tag>> Id128<Tag>::FromBytes(absl::string_view bytes) {
  FieldReader reader(bytes);
  Id128 id;
  id.high = reader.BigEndian64();
  id.low = reader.BigEndian64();
  if (!reader.Finished()) {
    return absl::InvalidArgumentError(
        absl::StrCat("an id is 16 bytes, got ", bytes.size()));
  }
  return id;
}

template struct Id128<NodeIdTag>;
template struct Id128<ClusterIdTag>;

}  // namespace ringkv
