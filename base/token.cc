#include "base/token.h"

#include <xxhash.h>

namespace ringkv {

Token TokenOf(absl::string_view key) {
  return XXH3_64bits(key.data(), key.size());
}

uint64_t Hash64(absl::string_view bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace ringkv
