// Ranges of tokens: the slice of one shard, and what is stored under them.

#ifndef RINGKV_SERVER_STREAMING_SLICE_H_
#define RINGKV_SERVER_STREAMING_SLICE_H_

#include <algorithm>
#include <optional>
#include <string>

#include "base/token.h"
#include "membership/topology/segments.h"
#include "storage/version/object.h"

namespace ringkv {

// The tokens for which ShardOf(token, shards) is `shard`.
inline TokenRange SliceOf(int shard, int shards) {
  const auto first = [shards](int shard) {
    return static_cast<Token>(
        ((static_cast<unsigned __int128>(shard) << 64) + shards - 1) /
        static_cast<unsigned>(shards));
  };
  return {first(shard), shard + 1 == shards ? ~Token{0} : first(shard + 1) - 1};
}

// The first storage key of the data family above all of `token`.
inline std::string DataKeyAfter(KeyspaceId keyspace, Token token) {
  return token == ~Token{0} ? DataKey(KeyspaceId{ToInt(keyspace) + 1}, 0, "")
                            : DataKey(keyspace, token + 1, "");
}

inline std::optional<TokenRange> Intersection(const TokenRange& a,
                                              const TokenRange& b) {
  const TokenRange both{std::max(a.first, b.first), std::min(a.last, b.last)};
  if (both.first > both.last) return std::nullopt;
  return both;
}

// The longest range from `token` on, up to `last`, all of whose segments
// `holds(segment)` answers alike for; with that answer.
struct Run {
  TokenRange range;
  bool held = false;
};
template <class Holds>
Run RunFrom(const Ring& ring, Token token, Token last, Holds holds) {
  Run run;
  run.range.first = token;
  bool first = true;
  while (true) {
    const size_t segment = ring.SegmentOf(token);
    const bool held = holds(token);
    if (first) {
      run.held = held;
      first = false;
    } else if (held != run.held) {
      return run;
    }
    // Tokens above the last one belong to segment 0.
    const Token end = ring.SegmentEnd(segment);
    run.range.last = std::min(end < token ? ~Token{0} : end, last);
    if (run.range.last == last) return run;
    token = run.range.last + 1;
  }
}

}  // namespace ringkv

#endif  // RINGKV_SERVER_STREAMING_SLICE_H_
