// What coordinators share: validation of calls, order of replicas, texts of
// refusals.

#ifndef RINGKV_SERVER_COORDINATOR_COMMON_H_
#define RINGKV_SERVER_COORDINATOR_COMMON_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/shard/core.h"

namespace ringkv {

// The keyspace of a call; empty means "default". NOT_FOUND names it.
absl::StatusOr<const Keyspace*> ResolveKeyspace(const Ring& ring,
                                                const std::string& name);

// INVALID_ARGUMENT for an empty key or one above the limit.
absl::Status CheckKey(absl::string_view key);

ObjectMode ModeOf(const Keyspace& keyspace);

// The replicas of a token: this node first, then the alive ones by recent
// answer time, then the others.
std::vector<NodeNumber> ReplicasByPreference(ShardCore& core, const Ring& ring,
                                             const Keyspace& keyspace,
                                             Token token);

// The moment at which an answer must leave to arrive before `deadline`.
Instant AnswerBy(Instant started, Instant deadline);

absl::string_view ReplyCodeText(ReplyCode code);

// Siblings that have not expired at `wall_ms`, as clients see them.
std::vector<SiblingAnswer> LiveSiblings(const Object& object, int64_t wall_ms);

}  // namespace ringkv

#endif  // RINGKV_SERVER_COORDINATOR_COMMON_H_
