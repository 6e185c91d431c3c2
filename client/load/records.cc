#include "client/load/records.h"

#include <csv.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/load/text.h"

namespace ringkv {
namespace {

class LineRecords : public RecordReader {
 public:
  LineRecords(LineReader lines, std::string name, const RecordOptions& options)
      : lines_(std::move(lines)), name_(std::move(name)), options_(options) {}

  uint64_t consumed() const override { return lines_.source().consumed(); }
  uint64_t total() const override { return lines_.source().total(); }

 protected:
  absl::Status At(uint64_t line, const absl::Status& status) const {
    return absl::Status(status.code(), absl::StrCat(name_, ", line ", line,
                                                    ": ", status.message()));
  }
  absl::Status Bad(uint64_t line, absl::string_view what) const {
    return At(line, absl::InvalidArgumentError(what));
  }
  // Names the file in what the lines say themselves.
  absl::StatusOr<bool> NextLine(std::string& line) {
    absl::StatusOr<bool> got = lines_.Next(line, options_.record_bytes_max);
    if (absl::IsResourceExhausted(got.status())) {
      return absl::ResourceExhaustedError(
          absl::StrCat(name_, ": ", got.status().message()));
    }
    return got;
  }

  LineReader lines_;
  const std::string name_;
  const RecordOptions options_;
};

// One JSON object a line: "key" and "value", or "siblings" with several.
class JsonRecords final : public LineRecords {
 public:
  using LineRecords::LineRecords;

  RecordFormat format() const override { return RecordFormat::kJsonLines; }

  absl::StatusOr<std::optional<Record>> Next() override {
    std::string text;
    do {
      absl::StatusOr<bool> got = NextLine(text);
      if (!got.ok()) return got.status();
      if (!*got) return std::nullopt;
    } while (absl::StripAsciiWhitespace(text).empty());
    const uint64_t line = lines_.line();
    Json json;
    // The library reports where it stopped only by an exception.
    try {
      json = Json::parse(text);
    } catch (const nlohmann::json::parse_error& error) {
      return Bad(
          line, absl::StrCat("this is not JSON: error at column ", error.byte));
    }
    if (!json.is_object()) return Bad(line, "this is no JSON object");
    Record record;
    record.line = line;
    absl::StatusOr<std::string> key = TakeBytes("key", json, false);
    if (!key.ok()) return Bad(line, key.status().message());
    record.key = *std::move(key);
    const auto siblings = json.find("siblings");
    if (siblings == json.end()) {
      absl::Status status = TakeValue(json, record);
      if (!status.ok()) return Bad(line, status.message());
      return record;
    }
    if (!siblings->is_array() || siblings->empty()) {
      return Bad(line, "\"siblings\" is no list of values");
    }
    for (const Json& sibling : *siblings) {
      if (!sibling.is_object()) {
        return Bad(line, "\"siblings\" holds what is no JSON object");
      }
      absl::Status status = TakeValue(sibling, record);
      if (!status.ok()) return Bad(line, status.message());
    }
    return record;
  }

 private:
  static absl::Status TakeValue(const Json& object, Record& record) {
    absl::StatusOr<std::string> bytes = TakeBytes("value", object, true);
    if (!bytes.ok()) return bytes.status();
    Record::Value value;
    value.bytes = *std::move(bytes);
    const auto expires = object.find("expires_at_ms");
    if (expires != object.end()) {
      if (!expires->is_number_integer() || expires->get<int64_t>() <= 0) {
        return absl::InvalidArgumentError(
            "\"expires_at_ms\" is no positive integer");
      }
      value.expires_at_ms = expires->get<int64_t>();
    }
    record.values.push_back(std::move(value));
    return absl::OkStatus();
  }
};

// Stanzas of "Field: value" lines, parted by empty lines. The value of a record
// is the stanza as it is.
class DebianRecords final : public LineRecords {
 public:
  using LineRecords::LineRecords;

  RecordFormat format() const override { return RecordFormat::kDebian; }

  absl::StatusOr<std::optional<Record>> Next() override {
    Record record;
    Record::Value value;
    std::string line;
    std::vector<std::optional<std::string>> fields(options_.key_fields.size());
    std::string wrong;
    while (true) {
      absl::StatusOr<bool> got = NextLine(line);
      if (!got.ok()) return got.status();
      const bool blank = *got && (line.empty() || line == "\r");
      if (!*got || blank) {
        if (!value.bytes.empty()) break;
        if (!*got) return std::nullopt;
        continue;
      }
      if (value.bytes.empty()) record.line = lines_.line();
      absl::StrAppend(&value.bytes, line, "\n");
      if (value.bytes.size() > options_.record_bytes_max) {
        return absl::ResourceExhaustedError(absl::StrCat(
            name_, ", line ", record.line, ": the stanza has more than ",
            options_.record_bytes_max, " bytes; is this a package index?"));
      }
      if (line[0] == ' ' || line[0] == '\t' || line[0] == '#') continue;
      const size_t colon = line.find(':');
      if (colon == std::string::npos || colon == 0) {
        if (wrong.empty()) {
          wrong = absl::StrCat("\"", Printable(line.substr(0, 40)),
                               "\" is no \"Field: value\" line");
        }
        continue;
      }
      const absl::string_view field(line.data(), colon);
      for (size_t i = 0; i < fields.size(); ++i) {
        if (absl::EqualsIgnoreCase(field, options_.key_fields[i])) {
          fields[i] = std::string(absl::StripAsciiWhitespace(
              absl::string_view(line).substr(colon + 1)));
        }
      }
    }
    if (!wrong.empty()) return Bad(record.line, wrong);
    std::vector<std::string> parts;
    for (size_t i = 0; i < fields.size(); ++i) {
      if (!fields[i].has_value()) {
        return Bad(record.line, absl::StrCat("the stanza has no field \"",
                                             options_.key_fields[i], "\""));
      }
      parts.push_back(*std::move(fields[i]));
    }
    record.key = absl::StrJoin(parts, options_.separator);
    record.values.push_back(std::move(value));
    return record;
  }
};

// Rows after a header; the value of a record is the row as a JSON object.
class CsvRecords final : public LineRecords {
 public:
  CsvRecords(LineReader lines, std::string name, const RecordOptions& options)
      : LineRecords(std::move(lines), std::move(name), options) {
    csv_init(&parser_, CSV_STRICT | CSV_STRICT_FINI);
    csv_set_delim(&parser_, static_cast<unsigned char>(options.delimiter));
    // Blanks around a field belong to it.
    csv_set_space_func(&parser_, [](unsigned char) { return 0; });
  }
  ~CsvRecords() override { csv_free(&parser_); }
  CsvRecords(const CsvRecords&) = delete;
  CsvRecords& operator=(const CsvRecords&) = delete;

  // Reads the header.
  absl::Status Open() {
    absl::StatusOr<bool> got = NextRow();
    if (!got.ok()) return got.status();
    if (!*got) {
      return Bad(1, "the file is empty; its first row must name the columns");
    }
    columns_ = std::move(rows_.front().fields);
    rows_.pop_front();
    if (!columns_.empty()) {
      // What spreadsheets write in front.
      absl::string_view first = columns_[0];
      if (absl::ConsumePrefix(&first, "\xef\xbb\xbf")) {
        columns_[0] = std::string(first);
      }
    }
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (std::find(columns_.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                    columns_.end(), columns_[i]) != columns_.end()) {
        return Bad(1, absl::StrCat("two columns are called \"",
                                   Printable(columns_[i]), "\""));
      }
      if (!IsUtf8(columns_[i])) {
        return Bad(1,
                   absl::StrCat("the name of column ", i + 1, " is not UTF-8"));
      }
    }
    for (const std::string& field : options_.key_fields) {
      const auto found = std::find(columns_.begin(), columns_.end(), field);
      if (found == columns_.end()) {
        return Bad(1, absl::StrCat("there is no column \"", field,
                                   "\" for the key; there are: ",
                                   Printable(absl::StrJoin(columns_, ", "))));
      }
      key_columns_.push_back(static_cast<size_t>(found - columns_.begin()));
    }
    return absl::OkStatus();
  }

  RecordFormat format() const override { return RecordFormat::kCsv; }

  absl::StatusOr<std::optional<Record>> Next() override {
    absl::StatusOr<bool> got = NextRow();
    if (!got.ok()) return got.status();
    if (!*got) return std::nullopt;
    const Row row = std::move(rows_.front());
    rows_.pop_front();
    if (row.fields.size() != columns_.size()) {
      return Bad(row.line,
                 absl::StrCat("the row has ", row.fields.size(),
                              " fields, the header ", columns_.size()));
    }
    Json object = Json::object();
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (!IsUtf8(row.fields[i])) {
        return Bad(row.line,
                   absl::StrCat("column \"", columns_[i], "\" is not UTF-8"));
      }
      object[columns_[i]] = row.fields[i];
    }
    Record record;
    record.line = row.line;
    std::vector<std::string> parts;
    for (const size_t i : key_columns_) parts.push_back(row.fields[i]);
    record.key = absl::StrJoin(parts, options_.separator);
    record.values.push_back({object.dump(), 0});
    return record;
  }

 private:
  struct Row {
    std::vector<std::string> fields;
    uint64_t line = 0;
  };

  // Parses until a row is there; false at the end.
  absl::StatusOr<bool> NextRow() {
    while (rows_.empty()) {
      if (finished_) return false;
      absl::StatusOr<absl::string_view> piece = lines_.NextBytes();
      if (!piece.ok()) return piece.status();
      if (piece->empty()) {
        finished_ = true;
        if (csv_fini(&parser_, OnField, OnRow, this) != 0) {
          return absl::DataLossError(absl::StrCat(
              name_, ", line ", row_line_,
              ": the file ends inside a quoted field that begins here"));
        }
        continue;
      }
      const size_t parsed = csv_parse(&parser_, piece->data(), piece->size(),
                                      OnField, OnRow, this);
      if (parsed != piece->size()) {
        const uint64_t newlines = static_cast<uint64_t>(std::count(
            piece->begin(),
            piece->begin() + static_cast<std::ptrdiff_t>(parsed), '\n'));
        finished_ = true;
        return absl::DataLossError(
            absl::StrCat(name_, ", line ", lines_before_ + newlines + 1,
                         ": a quote stands where none may (",
                         csv_strerror(csv_error(&parser_)), ")"));
      }
      lines_before_ +=
          static_cast<uint64_t>(std::count(piece->begin(), piece->end(), '\n'));
      if (bytes_ + parser_.entry_pos > options_.record_bytes_max) {
        finished_ = true;
        return absl::ResourceExhaustedError(absl::StrCat(
            name_, ", line ", row_line_, ": the row has more than ",
            options_.record_bytes_max, " bytes"));
      }
    }
    return true;
  }

  static void OnField(void* data, size_t size, void* self_pointer) {
    CsvRecords& self = *static_cast<CsvRecords*>(self_pointer);
    self.fields_.emplace_back(static_cast<const char*>(data), size);
    self.bytes_ += size;
    self.field_newlines_ += static_cast<uint64_t>(std::count(
        self.fields_.back().begin(), self.fields_.back().end(), '\n'));
  }
  static void OnRow(int, void* self_pointer) {
    CsvRecords& self = *static_cast<CsvRecords*>(self_pointer);
    self.rows_.push_back({std::move(self.fields_), self.row_line_});
    self.fields_.clear();
    self.row_line_ += 1 + self.field_newlines_;
    self.field_newlines_ = 0;
    self.bytes_ = 0;
  }

  csv_parser parser_;
  std::vector<std::string> columns_;
  std::vector<size_t> key_columns_;
  std::vector<std::string> fields_;
  std::deque<Row> rows_;
  uint64_t row_line_ = 1;
  uint64_t field_newlines_ = 0;
  uint64_t lines_before_ = 0;
  size_t bytes_ = 0;
  bool finished_ = false;
};

RecordFormat FormatByName(absl::string_view path) {
  for (const absl::string_view suffix : {".gz", ".xz", ".lz4"}) {
    if (absl::ConsumeSuffix(&path, suffix)) break;
  }
  if (absl::EndsWith(path, ".csv") || absl::EndsWith(path, ".tsv")) {
    return RecordFormat::kCsv;
  }
  if (absl::EndsWith(path, ".jsonl") || absl::EndsWith(path, ".ndjson") ||
      absl::EndsWith(path, ".json")) {
    return RecordFormat::kJsonLines;
  }
  if (absl::EndsWith(path, "Packages") || absl::EndsWith(path, "Sources")) {
    return RecordFormat::kDebian;
  }
  return RecordFormat::kDetect;
}

RecordFormat FormatByContent(absl::string_view start) {
  start = absl::StripLeadingAsciiWhitespace(start);
  if (absl::StartsWith(start, "{")) return RecordFormat::kJsonLines;
  const absl::string_view line = start.substr(0, start.find('\n'));
  const size_t colon = line.find(": ");
  if (colon != absl::string_view::npos && colon > 0 &&
      std::all_of(line.begin(),
                  line.begin() + static_cast<std::ptrdiff_t>(colon),
                  [](char c) {
                    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                           c == '-';
                  })) {
    return RecordFormat::kDebian;
  }
  return RecordFormat::kDetect;
}

}  // namespace

absl::StatusOr<RecordFormat> ParseFormat(absl::string_view text) {
  if (text == "auto") return RecordFormat::kDetect;
  if (text == "jsonl") return RecordFormat::kJsonLines;
  if (text == "csv") return RecordFormat::kCsv;
  if (text == "debian") return RecordFormat::kDebian;
  return absl::InvalidArgumentError(absl::StrCat(
      "format \"", text, "\" is not one of auto, jsonl, csv, debian"));
}

absl::string_view FormatName(RecordFormat format) {
  switch (format) {
    case RecordFormat::kJsonLines:
      return "jsonl";
    case RecordFormat::kCsv:
      return "csv";
    case RecordFormat::kDebian:
      return "debian";
    case RecordFormat::kDetect:
      break;
  }
  return "auto";
}

absl::StatusOr<std::unique_ptr<RecordReader>> OpenRecords(
    const std::string& path, std::istream& standard_input,
    const RecordOptions& options) {
  const std::string name = path == "-" ? "standard input" : path;
  absl::StatusOr<std::unique_ptr<ByteSource>> file =
      OpenFile(path, standard_input);
  if (!file.ok()) return file.status();
  absl::StatusOr<std::unique_ptr<ByteSource>> plain =
      Decompress(*std::move(file), options.compression, name);
  if (!plain.ok()) return plain.status();
  LineReader lines(*std::move(plain));
  RecordOptions chosen = options;
  if (chosen.format == RecordFormat::kDetect) {
    chosen.format = FormatByName(path);
  }
  if (chosen.format == RecordFormat::kDetect) {
    absl::StatusOr<absl::string_view> start = lines.Peek(4096);
    if (!start.ok()) return start.status();
    chosen.format =
        start->empty() ? RecordFormat::kJsonLines : FormatByContent(*start);
  }
  switch (chosen.format) {
    case RecordFormat::kJsonLines:
      if (!chosen.key_fields.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat(name,
                         ": JSON lines carry their key in \"key\"; "
                         "--key is for csv and debian"));
      }
      return std::unique_ptr<RecordReader>(
          new JsonRecords(std::move(lines), name, chosen));
    case RecordFormat::kDebian:
      if (chosen.key_fields.empty()) chosen.key_fields = {"Package"};
      return std::unique_ptr<RecordReader>(
          new DebianRecords(std::move(lines), name, chosen));
    case RecordFormat::kCsv: {
      if (chosen.key_fields.empty()) {
        return absl::InvalidArgumentError(absl::StrCat(
            name, ": CSV needs the column of the key; add --key COLUMN"));
      }
      if (absl::EndsWith(path, ".tsv") && options.delimiter == ',') {
        chosen.delimiter = '\t';
      }
      auto csv = std::make_unique<CsvRecords>(std::move(lines), name, chosen);
      absl::Status status = csv->Open();
      if (!status.ok()) return status;
      return std::unique_ptr<RecordReader>(std::move(csv));
    }
    case RecordFormat::kDetect:
      break;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      name,
      ": what format this is cannot be told from its name or first "
      "bytes; add --format jsonl, csv or debian"));
}

}  // namespace ringkv
