// Operations that change the cluster, as kvctl shows them.

#ifndef RINGKV_CLIENT_KVCTL_OPERATIONS_H_
#define RINGKV_CLIENT_KVCTL_OPERATIONS_H_

#include <optional>
#include <string>

#include "client/kvctl/command.h"

namespace ringkv {

// "join of n4, n5": what an operation is about.
std::string Subject(const v1::OperationStatus& operation);
// "streaming, 30 of 100 ranges; waits for n4: receives".
std::string ProgressText(const v1::OperationStatus& operation);
Json OperationJson(const v1::OperationStatus& operation);

// Shows the progress of operation `id` until it ends; returns the exit code.
// Whoever interrupts it is told how to watch again.
int WatchOperation(Session& session, uint64_t id, bool no_progress);

}  // namespace ringkv

#endif  // RINGKV_CLIENT_KVCTL_OPERATIONS_H_
