#include "server/streaming/chunk.h"

#include <string>

#include "base/coding.h"
#include "base/planted.h"
#include "base/token.h"

namespace ringkv {
namespace {

void Append(std::string& out, const StreamPosition& position) {
  AppendFixed64(out, position.token);
  AppendBytes(out, position.key);
}

}  // namespace

uint64_t ChecksumOf(const StreamChunk& chunk) {
  std::string content;
  content.reserve(ContentBytes(chunk) + 16 * chunk.items.size() + 64);
  AppendByte(content, static_cast<uint8_t>(chunk.code));
  AppendByte(content, static_cast<uint8_t>(chunk.kind));
  Append(content, chunk.from);
  AppendVarint(content, chunk.items.size());
  for (const StreamChunk::Item& item : chunk.items) {
    AppendBytes(content, item.key);
    AppendBytes(content, item.object);
    AppendFixed64(content, item.digest);
  }
  AppendByte(content, chunk.complete ? 1 : 0);
  Append(content, chunk.next);
  return Hash64(content);
}

size_t ContentBytes(const StreamChunk& chunk) {
  size_t bytes = 0;
  for (const StreamChunk::Item& item : chunk.items) {
    bytes += item.key.size() + item.object.size();
  }
  return bytes;
}

absl::Status CheckChunk(const StreamRequest& request,
                        const StreamChunk& chunk) {
  if (chunk.checksum != ChecksumOf(chunk) && !Planted("damaged-chunk-taken")) {
    return absl::DataLossError("the checksum of a chunk does not fit");
  }
  const absl::Status bad =
      absl::InvalidArgumentError("a chunk does not answer what was asked");
  StreamPosition place = request.from;
  for (const StreamChunk::Item& item : chunk.items) {
    const StreamPosition at{TokenOf(item.key), item.key};
    if (at < place || at.token > request.last) return bad;
    place = at;
    place.key.push_back('\0');
  }
  if (chunk.complete) return absl::OkStatus();
  if (chunk.next < place || chunk.next <= request.from ||
      chunk.next.token > request.last) {
    return bad;
  }
  return absl::OkStatus();
}

}  // namespace ringkv
