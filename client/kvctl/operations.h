// Operations that change the cluster, as kvctl shows them.

#ifndef RINGKV_CLIENT_KVCTL_OPERATIONS_H_
#define RINGKV_CLIENT_KVCTL_OPERATIONS_H_

#include <optional>
#include <string>

#include "client/kvctl/command.h"

namespace ringkv {

using NodeRefs = google::protobuf::RepeatedPtrField<v1::NodeRef>;

// "n4, n5"
std::string RefsText(const NodeRefs& nodes);
Json RefsJson(const NodeRefs& nodes);

// What moves, who owns how much before and after, and warnings.
std::string PlanText(const v1::OperationPlan& plan);
Json PlanJson(const v1::OperationPlan& plan);

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
