// How playgrounds are found again: each keeps a file in its folder locked while
// it runs, which names its process and its cluster. The lock goes with the
// process, however that ends, so the file alone means nothing.

#ifndef RINGKV_CLIENT_KVCTL_PLAYGROUND_MARK_H_
#define RINGKV_CLIENT_KVCTL_PLAYGROUND_MARK_H_

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace ringkv {

// What the file says.
struct PlaygroundFacts {
  pid_t pid = 0;
  // One node that was added to a cluster, not a cluster.
  bool is_added = false;
  std::vector<std::string> endpoints;  // of the cluster
};

// Held while a playground runs in a folder.
class PlaygroundMark {
 public:
  // FAILED_PRECONDITION: one runs there. PERMISSION_DENIED: no file can be
  // made.
  static absl::StatusOr<PlaygroundMark> Claim(
      const std::filesystem::path& folder, PlaygroundFacts facts);
  PlaygroundMark(PlaygroundMark&& other) noexcept;
  PlaygroundMark& operator=(PlaygroundMark&&) = delete;
  ~PlaygroundMark();

 private:
  explicit PlaygroundMark(int file) : file_(file) {}
  int file_;
};

// What runs in `folder`; nothing: no playground.
std::optional<PlaygroundFacts> FindPlayground(
    const std::filesystem::path& folder);

// Asks the playground in `folder` to stop, and waits until it has.
// DEADLINE_EXCEEDED: it has not.
absl::Status StopPlaygroundIn(const std::filesystem::path& folder,
                              absl::Duration timeout);

}  // namespace ringkv

#endif  // RINGKV_CLIENT_KVCTL_PLAYGROUND_MARK_H_
