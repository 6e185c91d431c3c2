#include "membership/ring/domains.h"

#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace ringkv {

namespace {

template <typename Key>
uint32_t NumberOf(std::map<Key, uint32_t>& known, const Key& key) {
  return known.try_emplace(key, static_cast<uint32_t>(known.size()))
      .first->second;
}

}  // namespace

Domains::Domains(absl::Span<const Member> members,
                 const std::vector<bool>& taken)
    : zone(members.size(), kNoDomain),
      rack(members.size(), kNoDomain),
      host(members.size(), kNoDomain) {
  RINGKV_CHECK(taken.size() == members.size());
  std::map<std::string, uint32_t> zone_numbers;
  std::map<std::pair<uint32_t, std::string>, uint32_t> rack_numbers;
  std::map<std::pair<uint32_t, std::string>, uint32_t> host_numbers;
  for (size_t i = 0; i < members.size(); ++i) {
    if (!taken[i]) continue;
    const Location& location = members[i].location;
    zone[i] = NumberOf(zone_numbers, location.zone);
    rack[i] = NumberOf(rack_numbers, {zone[i], location.rack});
    host[i] = NumberOf(host_numbers, {rack[i], location.host});
    ++nodes;
  }
  zones = static_cast<uint32_t>(zone_numbers.size());
  racks = static_cast<uint32_t>(rack_numbers.size());
  hosts = static_cast<uint32_t>(host_numbers.size());
}

}  // namespace ringkv
