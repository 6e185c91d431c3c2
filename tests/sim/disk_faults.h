// What may happen to a disk as a whole: it fills up, records rot on it, it is
// lost, or an older one is put in its place; and how much room hints have.
// Drawn from a stream of chance of their own, so that the other faults of a
// seed stay as they are.

#ifndef RINGKV_TESTS_SIM_DISK_FAULTS_H_
#define RINGKV_TESTS_SIM_DISK_FAULTS_H_

#include "tests/sim/plan.h"

namespace ringkv::sim {

// Adds them to a plan that has its other faults. Never both rot and lost disks:
// a record of which too few copies are left to be sure of stays unreadable
// until somebody replaces the node that is gone.
void PlanDiskFaults(Plan& plan);

}  // namespace ringkv::sim

#endif  // RINGKV_TESTS_SIM_DISK_FAULTS_H_
