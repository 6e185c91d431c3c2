#include "base/ids.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

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

template struct Id128<NodeIdTag>;
template struct Id128<ClusterIdTag>;

}  // namespace ringkv
