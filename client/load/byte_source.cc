#include "client/load/byte_source.h"

#include <lz4frame.h>
#include <lzma.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ringkv {
namespace {

constexpr size_t kPieceBytes = 64 << 10;

// xz -9 needs 65 MiB; nothing that apt or xz makes needs more than this.
constexpr uint64_t kXzMemoryMax = 256ull << 20;

class StreamSource final : public ByteSource {
 public:
  StreamSource(std::unique_ptr<std::ifstream> file, std::istream* stream,
               uint64_t total, std::string name)
      : file_(std::move(file)),
        stream_(file_ != nullptr ? file_.get() : stream),
        total_(total),
        name_(std::move(name)) {}

  absl::StatusOr<size_t> Read(char* buffer, size_t size) override {
    stream_->read(buffer, static_cast<std::streamsize>(size));
    const size_t got = static_cast<size_t>(stream_->gcount());
    if (stream_->bad()) {
      return absl::DataLossError(
          absl::StrCat(name_, ": reading failed at byte ", consumed_ + got,
                       ": ", std::strerror(errno)));
    }
    consumed_ += got;
    return got;
  }

  uint64_t consumed() const override { return consumed_; }
  uint64_t total() const override { return total_; }

 private:
  std::unique_ptr<std::ifstream> file_;
  std::istream* stream_;
  uint64_t total_;
  std::string name_;
  uint64_t consumed_ = 0;
};

// Gives first the bytes that were looked at, then the rest.
class Prefixed final : public ByteSource {
 public:
  Prefixed(std::string prefix, std::unique_ptr<ByteSource> rest)
      : prefix_(std::move(prefix)), rest_(std::move(rest)) {}

  absl::StatusOr<size_t> Read(char* buffer, size_t size) override {
    if (at_ < prefix_.size()) {
      const size_t count = std::min(size, prefix_.size() - at_);
      std::memcpy(buffer, prefix_.data() + at_, count);
      at_ += count;
      return count;
    }
    return rest_->Read(buffer, size);
  }

  uint64_t consumed() const override {
    return rest_->consumed() - (prefix_.size() - at_);
  }
  uint64_t total() const override { return rest_->total(); }

 private:
  std::string prefix_;
  std::unique_ptr<ByteSource> rest_;
  size_t at_ = 0;
};

// What the three decoders share: input pieces and messages.
class Decoder : public ByteSource {
 public:
  Decoder(std::unique_ptr<ByteSource> source, std::string name,
          const char* kind)
      : source_(std::move(source)), name_(std::move(name)), kind_(kind) {}

  uint64_t consumed() const override { return source_->consumed() - left(); }
  uint64_t total() const override { return source_->total(); }

 protected:
  // Makes input_ non-empty, unless the source has ended.
  absl::Status Fill() {
    if (left() > 0 || ended_) return absl::OkStatus();
    input_.resize(kPieceBytes);
    absl::StatusOr<size_t> got = source_->Read(input_.data(), input_.size());
    if (!got.ok()) return got.status();
    ended_ = *got == 0;
    input_.resize(*got);
    at_ = 0;
    return absl::OkStatus();
  }

  absl::Status Truncated() const {
    return absl::DataLossError(
        absl::StrCat(name_, ": the ", kind_, " data is cut off at byte ",
                     consumed(), " (", produced_, " bytes unpacked)"));
  }
  absl::Status Damaged(absl::string_view why) const {
    return absl::DataLossError(absl::StrCat(
        name_, ": the ", kind_, " data is damaged near byte ", consumed(), ": ",
        why, " (", produced_, " bytes unpacked)"));
  }

  const char* data() const { return input_.data() + at_; }
  size_t left() const { return input_.size() - at_; }
  void Take(size_t count) { at_ += count; }
  bool ended() const { return ended_ && left() == 0; }

  uint64_t produced_ = 0;

 private:
  std::unique_ptr<ByteSource> source_;
  std::string name_;
  const char* kind_;
  std::vector<char> input_;
  size_t at_ = 0;
  bool ended_ = false;
};

class GzipDecoder final : public Decoder {
 public:
  GzipDecoder(std::unique_ptr<ByteSource> source, std::string name)
      : Decoder(std::move(source), std::move(name), "gzip") {
    inflateInit2(&stream_, 16 + MAX_WBITS);
  }
  ~GzipDecoder() override { inflateEnd(&stream_); }

  absl::StatusOr<size_t> Read(char* buffer, size_t size) override {
    while (true) {
      if (absl::Status status = Fill(); !status.ok()) return status;
      if (ended()) {
        if (in_member_) return Truncated();
        return 0;
      }
      in_member_ = true;
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data()));
      stream_.avail_in = static_cast<uInt>(left());
      stream_.next_out = reinterpret_cast<Bytef*>(buffer);
      stream_.avail_out = static_cast<uInt>(size);
      const int code = inflate(&stream_, Z_NO_FLUSH);
      Take(left() - stream_.avail_in);
      const size_t made = size - stream_.avail_out;
      produced_ += made;
      if (code == Z_STREAM_END) {
        // Members may follow each other.
        in_member_ = false;
        inflateReset(&stream_);
      } else if (code != Z_OK && code != Z_BUF_ERROR) {
        return Damaged(stream_.msg != nullptr ? stream_.msg : zError(code));
      }
      if (made > 0) return made;
    }
  }

 private:
  z_stream stream_ = {};
  bool in_member_ = false;
};

class XzDecoder final : public Decoder {
 public:
  XzDecoder(std::unique_ptr<ByteSource> source, std::string name)
      : Decoder(std::move(source), std::move(name), "xz") {
    code_ = lzma_stream_decoder(&stream_, kXzMemoryMax, LZMA_CONCATENATED);
  }
  ~XzDecoder() override { lzma_end(&stream_); }

  absl::StatusOr<size_t> Read(char* buffer, size_t size) override {
    while (code_ == LZMA_OK) {
      if (absl::Status status = Fill(); !status.ok()) return status;
      stream_.next_in = reinterpret_cast<const uint8_t*>(data());
      stream_.avail_in = left();
      stream_.next_out = reinterpret_cast<uint8_t*>(buffer);
      stream_.avail_out = size;
      const bool last = ended();
      code_ = lzma_code(&stream_, last ? LZMA_FINISH : LZMA_RUN);
      Take(left() - stream_.avail_in);
      const size_t made = size - stream_.avail_out;
      produced_ += made;
      if (made > 0) return made;
    }
    switch (code_) {
      case LZMA_STREAM_END:
        return 0;
      case LZMA_BUF_ERROR:
        return Truncated();
      case LZMA_MEMLIMIT_ERROR:
        return Damaged(absl::StrCat("unpacking needs more than ",
                                    kXzMemoryMax >> 20, " MiB of memory"));
      case LZMA_FORMAT_ERROR:
        return Damaged("this is not xz");
      case LZMA_OPTIONS_ERROR:
        return Damaged("it uses a filter that is not supported");
      default:
        // Damage and a cut look alike to liblzma if the cut leaves a whole
        // block.
        return ended() ? Truncated() : Damaged("a check failed");
    }
  }

 private:
  lzma_stream stream_ = LZMA_STREAM_INIT;
  lzma_ret code_;
};

class Lz4Decoder final : public Decoder {
 public:
  Lz4Decoder(std::unique_ptr<ByteSource> source, std::string name)
      : Decoder(std::move(source), std::move(name), "lz4") {
    LZ4F_createDecompressionContext(&context_, LZ4F_VERSION);
  }
  ~Lz4Decoder() override { LZ4F_freeDecompressionContext(context_); }

  absl::StatusOr<size_t> Read(char* buffer, size_t size) override {
    while (true) {
      if (absl::Status status = Fill(); !status.ok()) return status;
      if (ended() && !in_frame_) return 0;
      size_t made = size;
      size_t taken = left();
      const size_t hint =
          LZ4F_decompress(context_, buffer, &made, data(), &taken, nullptr);
      if (LZ4F_isError(hint)) return Damaged(LZ4F_getErrorName(hint));
      Take(taken);
      produced_ += made;
      // 0 ends a frame; another may follow.
      in_frame_ = hint != 0;
      if (made > 0) return made;
      if (in_frame_ && ended()) return Truncated();
    }
  }

 private:
  LZ4F_dctx* context_ = nullptr;
  bool in_frame_ = false;
};

}  // namespace

absl::StatusOr<Compression> ParseCompression(absl::string_view text) {
  if (text == "auto") return Compression::kDetect;
  if (text == "none") return Compression::kNone;
  if (text == "gzip") return Compression::kGzip;
  if (text == "xz") return Compression::kXz;
  if (text == "lz4") return Compression::kLz4;
  return absl::InvalidArgumentError(absl::StrCat(
      "compression \"", text, "\" is not one of auto, none, gzip, xz, lz4"));
}

absl::StatusOr<std::unique_ptr<ByteSource>> OpenFile(
    const std::string& path, std::istream& standard_input) {
  if (path == "-") {
    return std::unique_ptr<ByteSource>(
        new StreamSource(nullptr, &standard_input, 0, "standard input"));
  }
  std::error_code error;
  const std::filesystem::file_status status =
      std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    return absl::NotFoundError(absl::StrCat(path, ": there is no such file"));
  }
  if (status.type() == std::filesystem::file_type::directory) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": this is a folder; name the files in it"));
  }
  auto file = std::make_unique<std::ifstream>(path, std::ios::binary);
  if (!*file) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": cannot be opened: ", std::strerror(errno)));
  }
  uint64_t total = 0;
  if (status.type() == std::filesystem::file_type::regular) {
    total = std::filesystem::file_size(path, error);
    if (error) total = 0;
  }
  return std::unique_ptr<ByteSource>(
      new StreamSource(std::move(file), nullptr, total, path));
}

absl::StatusOr<std::unique_ptr<ByteSource>> Decompress(
    std::unique_ptr<ByteSource> source, Compression compression,
    const std::string& name) {
  if (compression == Compression::kDetect) {
    std::string start(6, '\0');
    size_t have = 0;
    while (have < start.size()) {
      absl::StatusOr<size_t> got =
          source->Read(start.data() + have, start.size() - have);
      if (!got.ok()) return got.status();
      if (*got == 0) break;
      have += *got;
    }
    start.resize(have);
    if (absl::StartsWith(start, "\x1f\x8b")) {
      compression = Compression::kGzip;
    } else if (start == absl::string_view("\xfd"
                                          "7zXZ\0",
                                          6)) {
      compression = Compression::kXz;
    } else if (absl::StartsWith(start, "\x04\x22\x4d\x18")) {
      compression = Compression::kLz4;
    } else if (absl::StartsWith(start, "\x28\xb5\x2f\xfd") ||
               absl::StartsWith(start, "BZh")) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, ": this is compressed with ",
          start[0] == 'B' ? "bzip2" : "zstd",
          ", which is not supported; unpack it and load from \"-\""));
    }
    source = std::make_unique<Prefixed>(std::move(start), std::move(source));
  }
  switch (compression) {
    case Compression::kGzip:
      return std::unique_ptr<ByteSource>(
          new GzipDecoder(std::move(source), name));
    case Compression::kXz:
      return std::unique_ptr<ByteSource>(
          new XzDecoder(std::move(source), name));
    case Compression::kLz4:
      return std::unique_ptr<ByteSource>(
          new Lz4Decoder(std::move(source), name));
    case Compression::kNone:
    case Compression::kDetect:
      break;
  }
  return source;
}

absl::StatusOr<bool> LineReader::Fill() {
  if (end_) return false;
  if (begin_ > 0) {
    buffer_.erase(0, begin_);
    begin_ = 0;
  }
  const size_t old = buffer_.size();
  buffer_.resize(old + kPieceBytes);
  absl::StatusOr<size_t> got = source_->Read(buffer_.data() + old, kPieceBytes);
  buffer_.resize(old + (got.ok() ? *got : 0));
  if (!got.ok()) return got.status();
  if (*got == 0) end_ = true;
  return !end_;
}

absl::StatusOr<bool> LineReader::Next(std::string& line, size_t bytes_max) {
  size_t searched = begin_;
  while (true) {
    const size_t newline = buffer_.find('\n', searched);
    if (newline != std::string::npos) {
      line.assign(buffer_, begin_, newline - begin_);
      begin_ = newline + 1;
      ++line_;
      return true;
    }
    if (buffer_.size() - begin_ > bytes_max) {
      return absl::ResourceExhaustedError(
          absl::StrCat("line ", line_ + 1, " has more than ", bytes_max,
                       " bytes, the most that a line may have"));
    }
    const size_t unsearched = buffer_.size() - begin_;
    absl::StatusOr<bool> more = Fill();
    if (!more.ok()) return more.status();
    searched = begin_ + unsearched;
    if (!*more) break;
  }
  if (begin_ == buffer_.size()) return false;
  line.assign(buffer_, begin_);
  begin_ = buffer_.size();
  ++line_;
  return true;
}

absl::StatusOr<absl::string_view> LineReader::Peek(size_t size) {
  while (buffer_.size() - begin_ < size) {
    absl::StatusOr<bool> more = Fill();
    if (!more.ok()) return more.status();
    if (!*more) break;
  }
  return absl::string_view(buffer_).substr(begin_);
}

absl::StatusOr<absl::string_view> LineReader::NextBytes() {
  if (begin_ == buffer_.size()) {
    absl::StatusOr<bool> more = Fill();
    if (!more.ok()) return more.status();
  }
  const absl::string_view piece = absl::string_view(buffer_).substr(begin_);
  begin_ = buffer_.size();
  return piece;
}

}  // namespace ringkv
