#include "base/planted.h"

#include <string>

namespace ringkv {

#if RINGKV_PLANTED_BUGS
namespace {
std::string& Chosen() {
  static std::string name;
  return name;
}
}  // namespace

bool Planted(absl::string_view name) { return Chosen() == name; }
void SetPlantedBug(absl::string_view name) { Chosen() = std::string(name); }
#endif

}  // namespace ringkv
