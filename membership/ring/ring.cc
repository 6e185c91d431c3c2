#include "membership/ring/ring.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/status.h"
#include "membership/ring/domains.h"

namespace ringkv {

namespace {

absl::Status Invalid(absl::string_view what) {
  return absl::InvalidArgumentError(what);
}

// Quotes what may come from anywhere, for a message.
std::string Quoted(absl::string_view text) {
  constexpr size_t kShown = 64;
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kShown)),
                      text.size() > kShown ? "...\"" : "\"");
}

absl::Status CheckText(absl::string_view what, absl::string_view text,
                       size_t bytes_max) {
  if (text.size() > bytes_max) {
    return Invalid(absl::StrCat(what, " has ", text.size(),
                                " bytes, more than the limit of ", bytes_max));
  }
  for (char c : text) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      return Invalid(
          absl::StrCat(what, " ", Quoted(text), " has control characters"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLocationPart(absl::string_view what, absl::string_view text) {
  RETURN_IF_ERROR(CheckText(what, text, kNameBytesMax));
  if (text.find_first_of(",=") != absl::string_view::npos) {
    return Invalid(absl::StrCat(what, " ", Quoted(text), " has ',' or '='"));
  }
  return absl::OkStatus();
}

absl::Status CheckMember(const Member& member) {
  if (member.number == kNoNode) return Invalid("a member has number 0");
  const std::string who = absl::StrCat("member ", ToInt(member.number));
  if (member.id.IsNone()) return Invalid(absl::StrCat(who, " has no id"));
  if (!(member.weight > 0 && member.weight <= kWeightMax)) {
    return Invalid(absl::StrCat(who, " has weight ", member.weight,
                                ", not above 0 and up to ", kWeightMax));
  }
  RETURN_IF_ERROR(
      CheckText(absl::StrCat("the name of ", who), member.name, kNameBytesMax));
  RETURN_IF_ERROR(CheckText(absl::StrCat("the client address of ", who),
                            member.client_address, kAddressBytesMax));
  RETURN_IF_ERROR(CheckText(absl::StrCat("the peer address of ", who),
                            member.peer_address, kAddressBytesMax));
  RETURN_IF_ERROR(CheckLocationPart(absl::StrCat("the zone of ", who),
                                    member.location.zone));
  RETURN_IF_ERROR(CheckLocationPart(absl::StrCat("the rack of ", who),
                                    member.location.rack));
  return CheckLocationPart(absl::StrCat("the host of ", who),
                           member.location.host);
}

Token BalancedToken(size_t i, size_t segments) {
  // (i + 1) * 2^64 / Q - 1; for the last one the product wraps to 0.
  const int shift = 64 - std::countr_zero(segments);
  return (shift == 64 ? 0 : static_cast<Token>(i + 1) << shift) - 1;
}

size_t TextBytes(const std::string& text) {
  // Short texts live inside the string.
  return text.capacity() > std::string().capacity() ? text.capacity() + 1 : 0;
}

template <typename T>
size_t VectorBytes(const std::vector<T>& v) {
  return v.capacity() * sizeof(T);
}

}  // namespace

bool TopologyOperation::Joins(NodeNumber node) const {
  return (kind == TopologyKind::kJoin || kind == TopologyKind::kReplace) &&
         absl::c_linear_search(nodes, node);
}

bool TopologyOperation::Leaves(NodeNumber node) const {
  return TakesForDead(node) || (kind == TopologyKind::kDecommission &&
                                absl::c_linear_search(nodes, node));
}

bool TopologyOperation::TakesForDead(NodeNumber node) const {
  return kind == TopologyKind::kRemoveDead
             ? absl::c_linear_search(nodes, node)
             : absl::c_linear_search(replaced, node);
}

bool TopologyOperation::GoesOnWithout(NodeNumber node) const {
  return TakesForDead(node) || absl::c_linear_search(stopped, node);
}

bool IsFormerLineage(const std::vector<uint64_t>& former, uint64_t lineage) {
  return absl::c_linear_search(former, lineage);
}

const char* NameOf(TopologyKind kind) {
  switch (kind) {
    case TopologyKind::kJoin:
      return "join";
    case TopologyKind::kDecommission:
      return "decommission";
    case TopologyKind::kRemoveDead:
      return "remove-dead";
    case TopologyKind::kReplace:
      return "replace";
    case TopologyKind::kWeight:
      return "weight";
    case TopologyKind::kKeyspace:
      return "keyspace";
  }
  return "unknown";
}

std::string Location::ToString() const {
  std::string text;
  for (const auto& [name, value] :
       {std::pair<const char*, const std::string&>("zone", zone),
        std::pair<const char*, const std::string&>("rack", rack),
        std::pair<const char*, const std::string&>("host", host)}) {
    if (value.empty()) continue;
    absl::StrAppend(&text, text.empty() ? "" : ",", name, "=", value);
  }
  return text;
}

absl::StatusOr<Location> Location::Parse(absl::string_view text) {
  Location location;
  if (text.empty()) return location;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    const auto& [name, value] = pair;
    std::string* field = name == "zone"   ? &location.zone
                         : name == "rack" ? &location.rack
                         : name == "host" ? &location.host
                                          : nullptr;
    if (field == nullptr) {
      return Invalid(absl::StrCat("unknown part ", Quoted(part),
                                  " of location ", Quoted(text),
                                  "; use zone=Z,rack=R,host=H"));
    }
    if (!field->empty()) {
      return Invalid(absl::StrCat("repeated part ", Quoted(part),
                                  " of location ", Quoted(text)));
    }
    if (value.empty()) {
      return Invalid(absl::StrCat("empty part ", Quoted(part), " of location ",
                                  Quoted(text)));
    }
    RETURN_IF_ERROR(
        CheckLocationPart(absl::StrCat("location part ", name), value));
    *field = std::string(value);
  }
  return location;
}

absl::Status CheckKeyspaceName(absl::string_view name) {
  if (name.empty() || name.size() > 64) {
    return Invalid(absl::StrCat("a keyspace name of ", name.size(),
                                " bytes, not 1 to 64"));
  }
  for (char c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_' &&
        c != '.' && c != '-') {
      return Invalid(
          absl::StrCat("the keyspace name ", Quoted(name),
                       " has other characters than A-Z a-z 0-9 _ . -"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckKeyspace(const Keyspace& keyspace) {
  RETURN_IF_ERROR(CheckKeyspaceName(keyspace.name));
  if (keyspace.n < 1 || keyspace.n > kReplicasMax) {
    return Invalid(absl::StrCat("keyspace ", keyspace.name, " has N=",
                                keyspace.n, ", not 1 to ", kReplicasMax));
  }
  if (keyspace.r < 1 || keyspace.r > keyspace.n) {
    return Invalid(absl::StrCat("keyspace ", keyspace.name, " has R=",
                                keyspace.r, ", not 1 to N=", keyspace.n));
  }
  if (keyspace.w < 1 || keyspace.w > keyspace.n) {
    return Invalid(absl::StrCat("keyspace ", keyspace.name, " has W=",
                                keyspace.w, ", not 1 to N=", keyspace.n));
  }
  return absl::OkStatus();
}

Ring::Ring(RingSpec spec) : spec_(std::move(spec)) {}

absl::StatusOr<std::shared_ptr<const Ring>> Ring::Make(RingSpec spec) {
  std::shared_ptr<Ring> ring(new Ring(std::move(spec)));
  RETURN_IF_ERROR(ring->Validate());
  ring->IndexTokens();
  std::map<uint32_t, std::shared_ptr<const Lists>> by_n;
  for (const Keyspace& keyspace : ring->spec_.keyspaces) {
    const uint32_t n = ring->EffectiveN(keyspace);
    std::shared_ptr<const Lists>& lists = by_n[n];
    if (lists == nullptr) lists = ring->MakeLists(n);
    ring->by_keyspace_.push_back(lists);
  }
  RETURN_IF_ERROR(ring->MakeOther());
  return ring;
}

absl::Status Ring::ValidateOperation() const {
  const TopologyOperation& operation = *spec_.operation;
  const auto invalid = [](absl::string_view what) {
    return Invalid(absl::StrCat("the running operation ", what));
  };
  if (operation.kind > TopologyKind::kKeyspace) {
    return invalid(
        absl::StrCat("is of unknown kind ", static_cast<int>(operation.kind)));
  }
  if (operation.phase > TopologyPhase::kSwitch) {
    return invalid(absl::StrCat("is in unknown phase ",
                                static_cast<int>(operation.phase)));
  }
  if (operation.id < 1 || operation.id > spec_.epoch) {
    return invalid(absl::StrCat("began in epoch ", operation.id,
                                ", but the ring has epoch ", spec_.epoch));
  }
  if (operation.nodes.empty() != (operation.kind == TopologyKind::kKeyspace)) {
    return invalid(absl::StrCat("is about ", operation.nodes.size(), " nodes"));
  }
  for (size_t i = 0; i < operation.nodes.size(); ++i) {
    if (i > 0 && operation.nodes[i] <= operation.nodes[i - 1]) {
      return invalid(absl::StrCat("names node ", ToInt(operation.nodes[i]),
                                  " after node ",
                                  ToInt(operation.nodes[i - 1])));
    }
    if (FindMember(operation.nodes[i]) == nullptr) {
      return invalid(absl::StrCat("names node ", ToInt(operation.nodes[i]),
                                  ", which is no member"));
    }
  }
  const size_t replaced =
      operation.kind == TopologyKind::kReplace ? operation.nodes.size() : 0;
  if (operation.replaced.size() != replaced) {
    return invalid(absl::StrCat("replaces ", operation.replaced.size(),
                                " nodes, not ", replaced));
  }
  for (NodeNumber node : operation.replaced) {
    if (FindMember(node) == nullptr) {
      return invalid(
          absl::StrCat("replaces node ", ToInt(node), ", which is no member"));
    }
  }
  if (!operation.stopped.empty() && operation.phase != TopologyPhase::kSwitch) {
    return invalid("goes on without members before it has switched");
  }
  for (size_t i = 0; i < operation.stopped.size(); ++i) {
    const NodeNumber node = operation.stopped[i];
    if (FindMember(node) == nullptr ||
        (i > 0 && node <= operation.stopped[i - 1])) {
      return invalid(
          absl::StrCat("goes on without node ", ToInt(node),
                       ", which is no member, or not in the order of numbers"));
    }
  }
  if (operation.kind == TopologyKind::kKeyspace &&
      FindKeyspace(operation.keyspace) == nullptr) {
    return invalid(absl::StrCat("is about keyspace ", ToInt(operation.keyspace),
                                ", which does not exist"));
  }
  if (operation.other.weights.size() != spec_.members.size()) {
    return invalid(absl::StrCat("has ", operation.other.weights.size(),
                                " weights for ", spec_.members.size(),
                                " members"));
  }
  if (operation.other.quorums.size() != spec_.keyspaces.size()) {
    return invalid(absl::StrCat("has quorums of ",
                                operation.other.quorums.size(), " of ",
                                spec_.keyspaces.size(), " keyspaces"));
  }
  return absl::OkStatus();
}

absl::Status Ring::MakeOther() {
  if (!spec_.operation.has_value()) return absl::OkStatus();
  RETURN_IF_ERROR(ValidateOperation());
  const Arrangement& arrangement = spec_.operation->other;
  RingSpec other = spec_;
  other.operation.reset();
  other.tokens = arrangement.tokens;
  other.owners = arrangement.owners;
  for (size_t i = 0; i < other.members.size(); ++i) {
    other.members[i].weight = arrangement.weights[i];
    // Its name may be another's by now, which only this operation excuses.
    const std::vector<NodeNumber>& replaced = spec_.operation->replaced;
    if (std::find(replaced.begin(), replaced.end(), other.members[i].number) !=
        replaced.end()) {
      other.members[i].name.clear();
    }
  }
  for (size_t i = 0; i < other.keyspaces.size(); ++i) {
    const Quorums& quorums = arrangement.quorums[i];
    other.keyspaces[i].n = quorums.n;
    other.keyspaces[i].r = quorums.r;
    other.keyspaces[i].w = quorums.w;
  }
  absl::StatusOr<std::shared_ptr<const Ring>> made =
      Ring::Make(std::move(other));
  if (!made.ok()) {
    return Invalid(
        absl::StrCat("the other arrangement of the running "
                     "operation: ",
                     made.status().message()));
  }
  other_ = *std::move(made);
  // As Make() wants it, so that equal rings have equal specs.
  spec_.operation->other.tokens = other_->spec().tokens;
  return absl::OkStatus();
}

absl::Status Ring::Validate() {
  if (spec_.cluster_id.IsNone()) return Invalid("the ring has no cluster id");
  if (spec_.epoch == 0) return Invalid("the ring has epoch 0");
  if (spec_.former_lineages.size() > kFormerLineagesMax) {
    return Invalid(absl::StrCat("the ring has ", spec_.former_lineages.size(),
                                " former lineages, more than the limit of ",
                                kFormerLineagesMax));
  }
  if (IsFormerLineage(spec_.former_lineages, spec_.lineage)) {
    return Invalid(absl::StrCat("the ring's lineage ", spec_.lineage,
                                " is among its former ones"));
  }

  // Members.
  std::vector<Member>& members = spec_.members;
  if (members.empty()) return Invalid("the ring has no members");
  if (members.size() > kMembersMax) {
    return Invalid(absl::StrCat("the ring has ", members.size(),
                                " members, more than the limit of ",
                                kMembersMax));
  }
  std::set<absl::string_view> names;
  for (size_t i = 0; i < members.size(); ++i) {
    RETURN_IF_ERROR(CheckMember(members[i]));
    if (i > 0 && members[i].number <= members[i - 1].number) {
      return Invalid(absl::StrCat("member ", ToInt(members[i].number),
                                  " stands after member ",
                                  ToInt(members[i - 1].number)));
    }
    // Who takes the place of a dead node may have its name.
    const bool replaced =
        spec_.operation.has_value() &&
        std::find(spec_.operation->replaced.begin(),
                  spec_.operation->replaced.end(),
                  members[i].number) != spec_.operation->replaced.end();
    if (!members[i].name.empty() && !replaced &&
        !names.insert(members[i].name).second) {
      return Invalid(
          absl::StrCat("two members are named ", Quoted(members[i].name)));
    }
  }
  if (members.back().number >= spec_.next_node_number) {
    return Invalid(absl::StrCat("member ", ToInt(members.back().number),
                                " is not below the next node number ",
                                ToInt(spec_.next_node_number)));
  }
  members_by_id_.resize(members.size());
  for (uint32_t i = 0; i < members.size(); ++i) members_by_id_[i] = i;
  std::sort(
      members_by_id_.begin(), members_by_id_.end(),
      [&](uint32_t a, uint32_t b) { return members[a].id < members[b].id; });
  for (size_t i = 1; i < members.size(); ++i) {
    const Member& a = members[members_by_id_[i - 1]];
    const Member& b = members[members_by_id_[i]];
    if (a.id == b.id) {
      return Invalid(absl::StrCat("members ", ToInt(a.number), " and ",
                                  ToInt(b.number), " both have id ",
                                  a.id.ToString()));
    }
  }
  if (spec_.departed.size() > kDepartedMax) {
    return Invalid(absl::StrCat("the ring has ", spec_.departed.size(),
                                " departed members, more than the limit of ",
                                kDepartedMax));
  }
  for (size_t i = 0; i < spec_.departed.size(); ++i) {
    const NodeNumber number = spec_.departed[i];
    if (number == kNoNode || number >= spec_.next_node_number) {
      return Invalid(absl::StrCat("departed member ", ToInt(number),
                                  " is not between 1 and the next node number ",
                                  ToInt(spec_.next_node_number)));
    }
    if (i > 0 && number <= spec_.departed[i - 1]) {
      return Invalid(absl::StrCat("departed member ", ToInt(number),
                                  " stands after ",
                                  ToInt(spec_.departed[i - 1])));
    }
    if (MemberIndex(number) < members.size()) {
      return Invalid(
          absl::StrCat("member ", ToInt(number), " is also a departed one"));
    }
  }

  // Keyspaces.
  std::vector<Keyspace>& keyspaces = spec_.keyspaces;
  if (keyspaces.size() > kKeyspacesMax) {
    return Invalid(absl::StrCat("the ring has ", keyspaces.size(),
                                " keyspaces, more than the limit of ",
                                kKeyspacesMax));
  }
  for (size_t i = 0; i < keyspaces.size(); ++i) {
    const Keyspace& keyspace = keyspaces[i];
    RETURN_IF_ERROR(CheckKeyspace(keyspace));
    if (keyspace.id == KeyspaceId{0} || keyspace.id >= spec_.next_keyspace_id) {
      return Invalid(absl::StrCat(
          "keyspace ", keyspace.name, " has id ", ToInt(keyspace.id),
          ", not between 1 and the next id ", ToInt(spec_.next_keyspace_id)));
    }
    if (i > 0 && keyspace.id <= keyspaces[i - 1].id) {
      return Invalid(absl::StrCat("keyspace id ", ToInt(keyspace.id),
                                  " stands after ",
                                  ToInt(keyspaces[i - 1].id)));
    }
    if (keyspace.changed_at < 1 || keyspace.changed_at > spec_.epoch) {
      return Invalid(absl::StrCat("keyspace ", keyspace.name,
                                  " changed in epoch ", keyspace.changed_at,
                                  ", but the ring has epoch ", spec_.epoch));
    }
  }
  keyspaces_by_name_.resize(keyspaces.size());
  for (uint32_t i = 0; i < keyspaces.size(); ++i) keyspaces_by_name_[i] = i;
  std::sort(keyspaces_by_name_.begin(), keyspaces_by_name_.end(),
            [&](uint32_t a, uint32_t b) {
              return keyspaces[a].name < keyspaces[b].name;
            });
  for (size_t i = 1; i < keyspaces.size(); ++i) {
    const Keyspace& a = keyspaces[keyspaces_by_name_[i - 1]];
    if (a.name == keyspaces[keyspaces_by_name_[i]].name) {
      return Invalid(absl::StrCat("two keyspaces are named ", a.name));
    }
  }

  // Tokens.
  const size_t segments = spec_.owners.size();
  switch (spec_.placement) {
    case PlacementStrategy::kBalanced:
      if (!std::has_single_bit(spec_.vnodes) || spec_.vnodes > kSegmentsMax) {
        return Invalid(absl::StrCat("a balanced ring of ", spec_.vnodes,
                                    " segments, not a power of two up to ",
                                    kSegmentsMax));
      }
      if (segments != spec_.vnodes) {
        return Invalid(absl::StrCat("a balanced ring of ", spec_.vnodes,
                                    " segments names ", segments, " owners"));
      }
      if (!spec_.tokens.empty()) {
        if (spec_.tokens.size() != segments) {
          return Invalid(absl::StrCat("a balanced ring of ", segments,
                                      " segments has ", spec_.tokens.size(),
                                      " tokens"));
        }
        for (size_t i = 0; i < segments; ++i) {
          if (spec_.tokens[i] != BalancedToken(i, segments)) {
            return Invalid(absl::StrCat("token ", i, " of a balanced ring is ",
                                        spec_.tokens[i], " instead of ",
                                        BalancedToken(i, segments)));
          }
        }
        spec_.tokens = {};
      }
      break;
    case PlacementStrategy::kHashed:
      if (spec_.vnodes < 1 || spec_.vnodes > kVnodesMax) {
        return Invalid(absl::StrCat("a hashed ring with ", spec_.vnodes,
                                    " vnodes, not 1 to ", kVnodesMax));
      }
      if (segments < 1 || segments > kTokensMax) {
        return Invalid(absl::StrCat("a hashed ring names ", segments,
                                    " owners, not 1 to ", kTokensMax));
      }
      if (spec_.tokens.size() != segments) {
        return Invalid(absl::StrCat("a hashed ring has ", spec_.tokens.size(),
                                    " tokens, but names ", segments,
                                    " owners"));
      }
      for (size_t i = 1; i < segments; ++i) {
        if (spec_.tokens[i] <= spec_.tokens[i - 1]) {
          return Invalid(absl::StrCat("token ", spec_.tokens[i],
                                      " stands after ", spec_.tokens[i - 1]));
        }
      }
      break;
    default:
      return Invalid(absl::StrCat("unknown placement strategy ",
                                  static_cast<int>(spec_.placement)));
  }
  std::vector<bool> owns_tokens(members.size(), false);
  for (size_t i = 0; i < segments; ++i) {
    const size_t member = MemberIndex(spec_.owners[i]);
    if (member == members.size()) {
      return Invalid(absl::StrCat("the owner of token ", i, ", node ",
                                  ToInt(spec_.owners[i]), ", is no member"));
    }
    owns_tokens[member] = true;
  }
  domains_ = std::make_shared<const Domains>(members, owns_tokens);
  owner_count_ = domains_->nodes;
  spec_.tokens.shrink_to_fit();
  spec_.owners.shrink_to_fit();
  return absl::OkStatus();
}

void Ring::IndexTokens() {
  const size_t count = spec_.owners.size();
  // About one token for each bucket; at least two buckets, as a shift by 64 is
  // undefined.
  const int bits = std::max(1, static_cast<int>(std::bit_width(count)) - 1);
  shift_ = 64 - bits;
  if (spec_.placement == PlacementStrategy::kBalanced) return;
  buckets_.resize((size_t{1} << bits) + 1);
  size_t at = 0;
  for (size_t bucket = 0; bucket + 1 < buckets_.size(); ++bucket) {
    while (at < count && spec_.tokens[at] >> shift_ < bucket) ++at;
    buckets_[bucket] = static_cast<uint32_t>(at);
  }
  buckets_.back() = static_cast<uint32_t>(count);
}

std::shared_ptr<const Ring::Lists> Ring::MakeLists(uint32_t n) const {
  const size_t segments = spec_.owners.size();
  std::vector<uint32_t> owners(segments);
  for (size_t i = 0; i < segments; ++i) {
    owners[i] = static_cast<uint32_t>(MemberIndex(spec_.owners[i]));
  }
  auto lists = std::make_shared<Lists>();
  lists->n = n;
  std::vector<NodeNumber> flat(segments * n);
  ForEachPreferenceList(owners, *domains_, n,
                        [&](size_t segment, absl::Span<const uint32_t> list) {
                          for (uint32_t k = 0; k < n; ++k) {
                            flat[segment * n + k] =
                                spec_.members[list[k]].number;
                          }
                        });
  // Share equal lists if that takes less room.
  const size_t distinct_max = segments - segments / n;
  absl::flat_hash_map<absl::Span<const NodeNumber>, uint32_t> known;
  std::vector<uint32_t> index(segments);
  for (size_t i = 0; i < segments; ++i) {
    index[i] = known
                   .try_emplace(absl::MakeConstSpan(&flat[i * n], n),
                                static_cast<uint32_t>(known.size()))
                   .first->second;
    if (known.size() >= distinct_max) {
      lists->nodes = std::move(flat);
      return lists;
    }
  }
  lists->nodes.resize(known.size() * n);
  for (size_t i = 0; i < segments; ++i) {
    std::copy_n(&flat[i * n], n, &lists->nodes[size_t{index[i]} * n]);
  }
  lists->index = std::move(index);
  return lists;
}

size_t Ring::MemberIndex(NodeNumber number) const {
  const std::vector<Member>& members = spec_.members;
  // Numbers run from 1 without gaps until somebody leaves.
  const size_t guess = size_t{ToInt(number)} - 1;
  if (guess < members.size() && members[guess].number == number) return guess;
  const auto at = std::lower_bound(
      members.begin(), members.end(), number,
      [](const Member& member, NodeNumber n) { return member.number < n; });
  return at != members.end() && at->number == number
             ? static_cast<size_t>(at - members.begin())
             : members.size();
}

const Member* Ring::FindMember(NodeNumber number) const {
  const size_t i = MemberIndex(number);
  return i < spec_.members.size() ? &spec_.members[i] : nullptr;
}

const Member* Ring::FindMember(const NodeId& id) const {
  const auto at =
      std::lower_bound(members_by_id_.begin(), members_by_id_.end(), id,
                       [&](uint32_t member, const NodeId& wanted) {
                         return spec_.members[member].id < wanted;
                       });
  return at != members_by_id_.end() && spec_.members[*at].id == id
             ? &spec_.members[*at]
             : nullptr;
}

const Keyspace* Ring::FindKeyspace(absl::string_view name) const {
  const auto at =
      std::lower_bound(keyspaces_by_name_.begin(), keyspaces_by_name_.end(),
                       name, [&](uint32_t keyspace, absl::string_view wanted) {
                         return spec_.keyspaces[keyspace].name < wanted;
                       });
  return at != keyspaces_by_name_.end() && spec_.keyspaces[*at].name == name
             ? &spec_.keyspaces[*at]
             : nullptr;
}

const Keyspace* Ring::FindKeyspace(KeyspaceId id) const {
  const auto at = std::lower_bound(
      spec_.keyspaces.begin(), spec_.keyspaces.end(), id,
      [](const Keyspace& keyspace, KeyspaceId i) { return keyspace.id < i; });
  return at != spec_.keyspaces.end() && at->id == id ? &*at : nullptr;
}

size_t Ring::SegmentOf(Token token) const {
  if (spec_.placement == PlacementStrategy::kBalanced) {
    // With one segment there is nothing to shift by.
    return spec_.owners.size() == 1 ? 0 : token >> shift_;
  }
  const size_t bucket = token >> shift_;
  const Token* first = spec_.tokens.data() + buckets_[bucket];
  const Token* last = spec_.tokens.data() + buckets_[bucket + 1];
  if (last - first > 8) {
    first = std::lower_bound(first, last, token);
  } else {
    while (first != last && *first < token) ++first;
  }
  const size_t segment = static_cast<size_t>(first - spec_.tokens.data());
  return segment == spec_.tokens.size() ? 0 : segment;
}

Token Ring::SegmentEnd(size_t i) const {
  RINGKV_CHECK(i < segments());
  return spec_.placement == PlacementStrategy::kBalanced
             ? BalancedToken(i, segments())
             : spec_.tokens[i];
}

uint32_t Ring::EffectiveN(const Keyspace& keyspace) const {
  return std::min(keyspace.n, owner_count_);
}
uint32_t Ring::EffectiveR(const Keyspace& keyspace) const {
  return std::min(keyspace.r, owner_count_);
}
uint32_t Ring::EffectiveW(const Keyspace& keyspace) const {
  return std::min(keyspace.w, owner_count_);
}

const Ring::Lists& Ring::ListsOf(const Keyspace& keyspace) const {
  const Keyspace* first = spec_.keyspaces.data();
  const std::less<const Keyspace*> before;
  if (!before(&keyspace, first) &&
      before(&keyspace, first + spec_.keyspaces.size())) {
    return *by_keyspace_[&keyspace - first];
  }
  const Keyspace* own = FindKeyspace(keyspace.id);
  RINGKV_CHECK(own != nullptr);
  return *by_keyspace_[own - first];
}

absl::Span<const NodeNumber> Ring::PreferenceList(const Keyspace& keyspace,
                                                  Token token) const {
  return ListsOf(keyspace).Of(SegmentOf(token));
}

absl::Span<const NodeNumber> Ring::PreferenceListOfSegment(
    const Keyspace& keyspace, size_t segment) const {
  RINGKV_CHECK(segment < segments());
  return ListsOf(keyspace).Of(segment);
}

std::vector<NodeNumber> Ring::Fallbacks(const Keyspace& keyspace,
                                        Token token) const {
  const std::vector<Member>& members = spec_.members;
  // The owners in the order in which a walk meets them.
  std::vector<uint32_t> met;
  met.reserve(owner_count_);
  std::vector<bool> seen(members.size(), false);
  for (size_t i = SegmentOf(token); met.size() < owner_count_;
       i = i + 1 == segments() ? 0 : i + 1) {
    const size_t member = MemberIndex(spec_.owners[i]);
    if (seen[member]) continue;
    seen[member] = true;
    met.push_back(static_cast<uint32_t>(member));
  }
  const Domains& domains = *domains_;
  std::vector<uint32_t> order;
  order.reserve(members.size());
  std::vector<bool> zone_used(domains.zones), rack_used(domains.racks),
      host_used(domains.hosts), chosen(members.size());
  const auto choose = [&](uint32_t member) {
    zone_used[domains.zone[member]] = true;
    rack_used[domains.rack[member]] = true;
    host_used[domains.host[member]] = true;
    chosen[member] = true;
    order.push_back(member);
  };
  for (uint32_t m : met) {
    if (!zone_used[domains.zone[m]]) choose(m);
  }
  for (uint32_t m : met) {
    if (!rack_used[domains.rack[m]]) choose(m);
  }
  for (uint32_t m : met) {
    if (!host_used[domains.host[m]]) choose(m);
  }
  for (uint32_t m : met) {
    if (!chosen[m]) choose(m);
  }
  for (uint32_t m = 0; m < members.size(); ++m) {
    if (domains.host[m] == kNoDomain) order.push_back(m);
  }
  std::vector<NodeNumber> fallbacks;
  const uint32_t n = EffectiveN(keyspace);
  fallbacks.reserve(order.size() - n);
  for (size_t i = n; i < order.size(); ++i) {
    fallbacks.push_back(members[order[i]].number);
  }
  return fallbacks;
}

bool Ring::IsReplica(const Keyspace& keyspace, Token token,
                     NodeNumber node) const {
  const absl::Span<const NodeNumber> list = PreferenceList(keyspace, token);
  return std::find(list.begin(), list.end(), node) != list.end();
}

absl::Span<const NodeNumber> Ring::OtherList(const Keyspace& keyspace,
                                             Token token) const {
  if (other_ == nullptr) return {};
  const Keyspace* there = other_->FindKeyspace(keyspace.id);
  if (there == nullptr) return {};
  const absl::Span<const NodeNumber> list =
      other_->PreferenceList(*there, token);
  const absl::Span<const NodeNumber> here = PreferenceList(keyspace, token);
  const bool same_nodes =
      list.size() == here.size() &&
      std::is_permutation(list.begin(), list.end(), here.begin());
  if (same_nodes && there->r == keyspace.r && there->w == keyspace.w) return {};
  return list;
}

bool Ring::IsHolder(const Keyspace& keyspace, Token token,
                    NodeNumber node) const {
  if (IsReplica(keyspace, token, node)) return true;
  const absl::Span<const NodeNumber> list = OtherList(keyspace, token);
  return std::find(list.begin(), list.end(), node) != list.end();
}

bool Ring::IsJoining(NodeNumber node) const {
  return spec_.operation.has_value() && spec_.operation->Joins(node);
}

bool Ring::IsLeaving(NodeNumber node) const {
  return spec_.operation.has_value() &&
         spec_.operation->phase == TopologyPhase::kSwitch &&
         spec_.operation->Leaves(node) && !spec_.operation->TakesForDead(node);
}

size_t Ring::MemoryBytes() const {
  size_t bytes = (other_ == nullptr ? 0 : other_->MemoryBytes()) +
                 sizeof(*this) + VectorBytes(spec_.members) +
                 VectorBytes(spec_.keyspaces) + VectorBytes(spec_.tokens) +
                 VectorBytes(spec_.owners) + VectorBytes(spec_.departed) +
                 VectorBytes(members_by_id_) + VectorBytes(keyspaces_by_name_) +
                 sizeof(Domains) + VectorBytes(domains_->zone) +
                 VectorBytes(domains_->rack) + VectorBytes(domains_->host) +
                 VectorBytes(buckets_) + VectorBytes(by_keyspace_);
  for (const Member& member : spec_.members) {
    bytes += TextBytes(member.name) + TextBytes(member.client_address) +
             TextBytes(member.peer_address) + TextBytes(member.location.zone) +
             TextBytes(member.location.rack) + TextBytes(member.location.host);
  }
  for (const Keyspace& keyspace : spec_.keyspaces)
    bytes += TextBytes(keyspace.name);
  std::set<const Lists*> counted;
  for (const auto& lists : by_keyspace_) {
    if (!counted.insert(lists.get()).second) continue;
    bytes +=
        sizeof(Lists) + VectorBytes(lists->nodes) + VectorBytes(lists->index);
  }
  return bytes;
}

}  // namespace ringkv
