// The pieces of our own stored and sent encodings: fixed-width little-endian
// integers, LEB128 varints of which only the shortest form is valid (so that
// equal records have equal bytes), and length-prefixed bytes.

#ifndef RINGKV_BASE_CODING_H_
#define RINGKV_BASE_CODING_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace ringkv {

inline constexpr size_t kVarintBytesMax = 10;

inline void AppendByte(std::string& out, uint8_t byte) {
  out.push_back(static_cast<char>(byte));
}

inline void AppendFixed64(std::string& out, uint64_t value) {
  char bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(value >> (8 * i));
  out.append(bytes, sizeof(bytes));
}

inline void AppendVarint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    AppendByte(out, static_cast<uint8_t>(value) | 0x80);
    value >>= 7;
  }
  AppendByte(out, static_cast<uint8_t>(value));
}

inline void AppendBytes(std::string& out, absl::string_view bytes) {
  AppendVarint(out, bytes.size());
  out.append(bytes.data(), bytes.size());
}

// Big-endian, so that byte order is the order of the numbers; for keys.
inline void AppendBigEndian32(std::string& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) {
    AppendByte(out, static_cast<uint8_t>(value >> shift));
  }
}
inline void AppendBigEndian64(std::string& out, uint64_t value) {
  for (int shift = 56; shift >= 0; shift -= 8) {
    AppendByte(out, static_cast<uint8_t>(value >> shift));
  }
}

// Takes fields off the front of bytes that may be anything. Once a read fails,
// `ok()` stays false and every later read gives zero or nothing.
class FieldReader {
 public:
  explicit FieldReader(absl::string_view bytes) : rest_(bytes) {}

  bool ok() const { return ok_; }
  // True if all reads succeeded and no byte is left.
  bool Finished() const { return ok_ && rest_.empty(); }
  absl::string_view rest() const { return rest_; }

  uint8_t Byte() {
    const absl::string_view bytes = Take(1);
    return bytes.empty() ? 0 : static_cast<uint8_t>(bytes[0]);
  }

  uint64_t Fixed64() { return Integer(8, /*big_endian=*/false); }
  uint32_t BigEndian32() {
    return static_cast<uint32_t>(Integer(4, /*big_endian=*/true));
  }
  uint64_t BigEndian64() { return Integer(8, /*big_endian=*/true); }

  // Fails on overlong forms and on values above `max`.
  uint64_t Varint(uint64_t max = UINT64_MAX) {
    uint64_t value = 0;
    for (size_t i = 0; i < kVarintBytesMax; ++i) {
      const uint8_t byte = Byte();
      if (!ok_) return 0;
      if (i == kVarintBytesMax - 1 && byte > 1) return Fail();
      value |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
      if ((byte & 0x80) == 0) {
        if (byte == 0 && i > 0) return Fail();
        return value <= max ? value : Fail();
      }
    }
    return Fail();
  }

  // A count of items that take at least `item_bytes_min` bytes each; fails if
  // what is left cannot hold as many, so that it may be allocated for.
  size_t Count(size_t item_bytes_min) {
    return static_cast<size_t>(Varint(rest_.size() / item_bytes_min));
  }

  // Length-prefixed bytes; points into what the reader was given.
  absl::string_view Bytes() {
    return Take(static_cast<size_t>(Varint(rest_.size())));
  }

  absl::string_view Take(size_t size) {
    if (!ok_ || size > rest_.size()) {
      Fail();
      return {};
    }
    const absl::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }

  // Marks the input as invalid; for conditions between fields.
  uint64_t Fail() {
    ok_ = false;
    rest_ = {};
    return 0;
  }

 private:
  uint64_t Integer(size_t size, bool big_endian) {
    const absl::string_view bytes = Take(size);
    uint64_t value = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      const size_t shift = 8 * (big_endian ? size - 1 - i : i);
      value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << shift;
    }
    return value;
  }

  absl::string_view rest_;
  bool ok_ = true;
};

}  // namespace ringkv

#endif  // RINGKV_BASE_CODING_H_
