// Pieces of a range on their way from who holds it to who gains it.

#ifndef RINGKV_SERVER_STREAMING_CHUNK_H_
#define RINGKV_SERVER_STREAMING_CHUNK_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "server/messages.h"

namespace ringkv {

// Of one chunk; a single object may be larger.
inline constexpr uint32_t kChunkEntriesMax = 1000;
inline constexpr uint32_t kChunkBytesMax = 1 << 20;
// A chunk of digests is small; this is what is read for it.
inline constexpr uint32_t kDigestBytesMax = 4 << 20;

// Over our own coding of the chunk's content.
uint64_t ChecksumOf(const StreamChunk& chunk);

// Bytes of keys and objects.
size_t ContentBytes(const StreamChunk& chunk);

// INVALID_ARGUMENT if `chunk`, which answers kOk, is no answer to `request`:
// its keys leave the range, or their order, or it does not get on. DATA_LOSS if
// its checksum is not that of its content.
absl::Status CheckChunk(const StreamRequest& request, const StreamChunk& chunk);

}  // namespace ringkv

#endif  // RINGKV_SERVER_STREAMING_CHUNK_H_
