// Chance, as a seam. The generator and the reduction to a range are ours:
// std:: distributions differ between libraries and Abseil salts its seeds, so
// neither repeats a run from its seed.

#ifndef RINGKV_BASE_RANDOM_H_
#define RINGKV_BASE_RANDOM_H_

#include <array>
#include <cstdint>

namespace ringkv {

class Random {
 public:
  virtual ~Random() = default;

  // 64 uniform bits.
  virtual uint64_t Next() = 0;

  // Uniform in [0, bound). Requires bound > 0.
  uint64_t Uniform(uint64_t bound);

  // Uniform in [0, 1).
  double NextDouble() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

  // True with probability `p`.
  bool Chance(double p) { return NextDouble() < p; }
};

// xoshiro256** seeded through splitmix64. Source: Blackman and Vigna,
// "Scrambled linear pseudorandom number generators", ACM TOMS 47(4), 2021. Not
// for secrets.
class SeededRandom final : public Random {
 public:
  explicit SeededRandom(uint64_t seed);
  explicit SeededRandom(const std::array<uint64_t, 4>& state);
  uint64_t Next() override;

 private:
  std::array<uint64_t, 4> state_;
};

}  // namespace ringkv

#endif  // RINGKV_BASE_RANDOM_H_
