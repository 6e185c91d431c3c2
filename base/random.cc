#include "base/random.h"

namespace ringkv {
namespace {

uint64_t RotateLeft(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

}  // namespace

uint64_t Random::Uniform(uint64_t bound) {
  // Lemire's multiply-and-reject: unbiased, and one multiplication as a rule.
  while (true) {
    const unsigned __int128 product =
        static_cast<unsigned __int128>(Next()) * bound;
    const uint64_t low = static_cast<uint64_t>(product);
    if (low >= bound || low >= (0 - bound) % bound) {
      return static_cast<uint64_t>(product >> 64);
    }
  }
}

SeededRandom::SeededRandom(uint64_t seed) {
  for (uint64_t& word : state_) {
    seed += 0x9e3779b97f4a7c15;
    uint64_t z = seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    word = z ^ (z >> 31);
  }
}

SeededRandom::SeededRandom(const std::array<uint64_t, 4>& state)
    : state_(state) {
  // The all-zero state is the generator's only fixed point.
  if (state_ == std::array<uint64_t, 4>{}) state_[0] = 1;
}

uint64_t SeededRandom::Next() {
  const uint64_t result = RotateLeft(state_[1] * 5, 7) * 9;
  const uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = RotateLeft(state_[3], 45);
  return result;
}

}  // namespace ringkv
