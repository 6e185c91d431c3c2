#include "base/mark.h"

#include <set>

namespace ringkv {
namespace {

std::vector<CoverageMark*>& Registry() {
  static auto* marks = new std::vector<CoverageMark*>();
  return *marks;
}

}  // namespace

CoverageMark::CoverageMark(const char* name) : name_(name) {
  Registry().push_back(this);
}

void ResetMarks() {
  for (CoverageMark* mark : Registry()) mark->Reset();
}

std::vector<std::string> MarksReached() {
  std::set<std::string> names;
  for (const CoverageMark* mark : Registry()) {
    if (mark->reached()) names.insert(mark->name());
  }
  return {names.begin(), names.end()};
}

std::vector<std::string> AllMarks() {
  std::set<std::string> names;
  for (const CoverageMark* mark : Registry()) names.insert(mark->name());
  return {names.begin(), names.end()};
}

}  // namespace ringkv
