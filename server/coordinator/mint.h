// Makes the object of a put or delete: the new value on top of what the
// coordinator holds, under a dot that is new in the history of the cluster.

#ifndef RINGKV_SERVER_COORDINATOR_MINT_H_
#define RINGKV_SERVER_COORDINATOR_MINT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/hlc.h"
#include "base/ids.h"
#include "base/random.h"
#include "base/time.h"
#include "membership/ring/ring.h"
#include "server/coordinator/outcomes.h"
#include "server/messages.h"
#include "storage/engine.h"
#include "storage/version/object.h"

namespace ringkv {

struct MintInput {
  const Keyspace& keyspace;
  const PutCall& put;
  const Context& context;  // given by the client, or read for it; may be empty
  NodeNumber self{};
  uint64_t start_id = 0;  // of this run
  WallTime wall;
  absl::Duration max_clock_drift;
};

struct Minted {
  std::string object;            // encoded; to be stored here
  std::optional<OwnRecord> own;  // to be stored beside it
  MintedWrite write;             // what goes to the replicas, and the answer
};

// `found` is what stands under the key in this node's `data` family (nothing
// for a stand-in, which begins a new actor for each put). Draws a stamp from
// `hlc` and may draw a birth from `random`. Nothing is written on an error:
// DATA_LOSS if the stored record is damaged, UNAVAILABLE if this node's clock
// lags too far behind what it has seen, INVALID_ARGUMENT or RESOURCE_EXHAUSTED
// beyond the limits on siblings and object size.
absl::StatusOr<Minted> MintWrite(const MintInput& input,
                                 const ReadResult& found, Hlc& hlc,
                                 Random& random);

}  // namespace ringkv

#endif  // RINGKV_SERVER_COORDINATOR_MINT_H_
