#include "tests/sim/history.h"

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
  for (size_t i = value.size(); i < bytes; ++i) {
    value.push_back(Padding(id, i));
  }
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
  return value == ValueOf(id, bytes) ? id : kNoOperation;
}

}  // namespace ringkv::sim
