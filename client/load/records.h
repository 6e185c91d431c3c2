// Records out of input: JSON lines, CSV, Debian package indexes.

#ifndef RINGKV_CLIENT_LOAD_RECORDS_H_
#define RINGKV_CLIENT_LOAD_RECORDS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/load/byte_source.h"

namespace ringkv {

enum class RecordFormat : uint8_t { kDetect, kJsonLines, kCsv, kDebian };

// "auto", "jsonl", "csv" or "debian". INVALID_ARGUMENT names what is known.
absl::StatusOr<RecordFormat> ParseFormat(absl::string_view text);
absl::string_view FormatName(RecordFormat format);

struct Record {
  std::string key;
  // One, or all the siblings of a key that had several.
  struct Value {
    std::string bytes;
    // Milliseconds since 1970; 0: never expires.
    int64_t expires_at_ms = 0;
  };
  std::vector<Value> values;
  // The line on which it begins, from 1.
  uint64_t line = 0;
};

struct RecordOptions {
  RecordFormat format = RecordFormat::kDetect;
  Compression compression = Compression::kDetect;
  // Fields or columns whose values, joined by `separator`, are the key. Empty:
  // "Package" for Debian indexes; CSV needs some.
  std::vector<std::string> key_fields;
  std::string separator = "=";
  char delimiter = ',';  // of CSV
  // The most that one record may take.
  size_t record_bytes_max = 16 << 20;
};

// Not thread-safe.
class RecordReader {
 public:
  virtual ~RecordReader() = default;

  // The next record; nullopt at the end. INVALID_ARGUMENT for a record that is
  // not what it should be: the reader stands behind it and may go on. Other
  // errors end the input (cut off, damaged, too long). All name the file and
  // the line.
  virtual absl::StatusOr<std::optional<Record>> Next() = 0;

  virtual RecordFormat format() const = 0;
  // Bytes of the input, as stored, consumed and in all (0: not known).
  virtual uint64_t consumed() const = 0;
  virtual uint64_t total() const = 0;
};

// Looks at the name and the first bytes for what is to be detected.
// INVALID_ARGUMENT if the format can not be told, or a CSV file has no column
// of the key.
absl::StatusOr<std::unique_ptr<RecordReader>> OpenRecords(
    const std::string& path, std::istream& standard_input,
    const RecordOptions& options);

}  // namespace ringkv

#endif  // RINGKV_CLIENT_LOAD_RECORDS_H_
