#include "tests/sim/history.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace ringkv::sim {
namespace {

char Padding(OperationId id, size_t position) {
  return static_cast<char>('a' + (id * 7 + position * 3) % 26);
}

}  // namespace

std::string ValueOf(OperationId id, size_t bytes) {
  std::string value = absl::StrCat("w", id, ":", bytes, ":");
  const size_t head = value.size();
  if (head < bytes) value.resize(bytes);
  for (size_t i = head; i < value.size(); ++i) value[i] = Padding(id, i);
  return value;
}

OperationId WriterOf(absl::string_view value) {
  const size_t first = value.find(':');
  if (first == absl::string_view::npos || value.empty() || value[0] != 'w') {
    return kNoOperation;
  }
  const size_t second = value.find(':', first + 1);
  if (second == absl::string_view::npos) return kNoOperation;
  OperationId id = 0;
  uint64_t bytes = 0;
  if (!absl::SimpleAtoi(value.substr(1, first - 1), &id) ||
      !absl::SimpleAtoi(value.substr(first + 1, second - first - 1), &bytes)) {
    return kNoOperation;
  }
  // Compared in place: every value that any answer shows comes by here.
  const absl::string_view head = value.substr(0, second + 1);
  if (head != absl::StrCat("w", id, ":", bytes, ":") ||
      value.size() != std::max(head.size(), static_cast<size_t>(bytes))) {
    return kNoOperation;
  }
  for (size_t i = head.size(); i < value.size(); ++i) {
    if (value[i] != Padding(id, i)) return kNoOperation;
  }
  return id;
}

}  // namespace ringkv::sim
