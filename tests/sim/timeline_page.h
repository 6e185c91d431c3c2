// The fixed part of a timeline's page.

#ifndef RINGKV_TESTS_SIM_TIMELINE_PAGE_H_
#define RINGKV_TESTS_SIM_TIMELINE_PAGE_H_

namespace ringkv::sim {

// The page is head, data ("const D = {...};"), tail.
extern const char kTimelineHead[];
extern const char kTimelineTail[];

}  // namespace ringkv::sim

#endif  // RINGKV_TESTS_SIM_TIMELINE_PAGE_H_
