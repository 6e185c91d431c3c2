// Where a key lies on the ring.

#ifndef RINGKV_BASE_TOKEN_H_
#define RINGKV_BASE_TOKEN_H_

#include "absl/strings/string_view.h"
#include "base/ids.h"

namespace ringkv {

// XXH3 with 64 bits and seed 0, over the key's bytes. Part of the on-disk and
// wire formats: never changes.
Token TokenOf(absl::string_view key);

// XXH3-64 of arbitrary bytes, for digests and checksums of our own encodings.
uint64_t Hash64(absl::string_view bytes, uint64_t seed = 0);

// The shard, in [0, shards), of a node that owns `token`: equal contiguous
// slices of the ring, so that a range scan meets shards in order.
inline int ShardOf(Token token, int shards) {
  return static_cast<int>(
      (static_cast<unsigned __int128>(token) * static_cast<unsigned>(shards)) >>
      64);
}

}  // namespace ringkv

#endif  // RINGKV_BASE_TOKEN_H_
