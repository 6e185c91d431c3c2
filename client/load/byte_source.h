// Input as a stream of plain bytes, whatever it was compressed with.

#ifndef RINGKV_CLIENT_LOAD_BYTE_SOURCE_H_
#define RINGKV_CLIENT_LOAD_BYTE_SOURCE_H_

#include <cstdint>
#include <istream>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ringkv {

enum class Compression : uint8_t { kDetect, kNone, kGzip, kXz, kLz4 };

// "auto", "none", "gzip", "xz" or "lz4". INVALID_ARGUMENT names what is known.
absl::StatusOr<Compression> ParseCompression(absl::string_view text);

// Not thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Fills `buffer` with up to `size` bytes; 0 at the end. DATA_LOSS for input
  // that is cut off or damaged, with the place.
  virtual absl::StatusOr<size_t> Read(char* buffer, size_t size) = 0;

  // Bytes of the input, as it is stored, that were consumed so far.
  virtual uint64_t consumed() const = 0;
  // Of the whole input, or 0 if that is not known.
  virtual uint64_t total() const = 0;
};

// A file, or standard input for "-" (then `standard_input` is read). NOT_FOUND
// or the like, naming the file.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenFile(
    const std::string& path, std::istream& standard_input);

// Looks at the first bytes for kDetect. `name` is for messages.
absl::StatusOr<std::unique_ptr<ByteSource>> Decompress(
    std::unique_ptr<ByteSource> source, Compression compression,
    const std::string& name);

// Reads lines out of a source, or the rest as bytes.
class LineReader {
 public:
  explicit LineReader(std::unique_ptr<ByteSource> source)
      : source_(std::move(source)) {}

  // Sets `line` without its "\n"; false at the end.
  // RESOURCE_EXHAUSTED for a line of more than `bytes_max`.
  absl::StatusOr<bool> Next(std::string& line, size_t bytes_max);

  // Bytes not yet taken, at least `size` of them if the source has so many.
  absl::StatusOr<absl::string_view> Peek(size_t size);

  // The next piece of the input as it is; empty at the end. Valid until the
  // next call.
  absl::StatusOr<absl::string_view> NextBytes();

  // Lines taken so far.
  uint64_t line() const { return line_; }
  const ByteSource& source() const { return *source_; }

 private:
  absl::StatusOr<bool> Fill();

  std::unique_ptr<ByteSource> source_;
  std::string buffer_;
  size_t begin_ = 0;
  uint64_t line_ = 0;
  bool end_ = false;
};

}  // namespace ringkv

#endif  // RINGKV_CLIENT_LOAD_BYTE_SOURCE_H_
