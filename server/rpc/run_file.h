// The file RUN in the data directory: which boot of the machine the node last
// ran in, and whether it stopped cleanly. Tells a crash of the process (nothing
// written is lost) from a loss of power (the end of the log may be missing).

#ifndef RINGKV_SERVER_RPC_RUN_FILE_H_
#define RINGKV_SERVER_RPC_RUN_FILE_H_

#include <string>

#include "absl/status/status.h"

namespace ringkv {

// True unless the last run is known to have been in this boot of the machine or
// to have stopped cleanly. False for a directory that no node has used.
bool MayHaveLostPower(const std::string& data_dir);

// Replaces the file, fsynced. PERMISSION_DENIED or UNAVAILABLE name it.
absl::Status WriteRunFile(const std::string& data_dir, bool clean);

}  // namespace ringkv

#endif  // RINGKV_SERVER_RPC_RUN_FILE_H_
