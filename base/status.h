// Small helpers around absl::Status.

#ifndef RINGKV_BASE_STATUS_H_
#define RINGKV_BASE_STATUS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define RINGKV_CONCAT_INNER(a, b) a##b
#define RINGKV_CONCAT(a, b) RINGKV_CONCAT_INNER(a, b)

// Returns from the enclosing function if `expr` is not OK.
#define RETURN_IF_ERROR(expr)                      \
  do {                                             \
    absl::Status ringkv_status = (expr);           \
    if (!ringkv_status.ok()) return ringkv_status; \
  } while (false)

// Assigns the value of a StatusOr to `lhs`, or returns its status.
#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_INNER(RINGKV_CONCAT(ringkv_statusor, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_INNER(name, lhs, expr) \
  auto name = (expr);                           \
  if (!name.ok()) return name.status();         \
  lhs = *std::move(name)

#endif  // RINGKV_BASE_STATUS_H_
