// Coverage marks: named places in rare branches. The simulator's summary tells
// which of them a set of runs has reached; outside it they cost one flag test.

#ifndef RINGKV_BASE_MARK_H_
#define RINGKV_BASE_MARK_H_

#include <atomic>
#include <string>
#include <vector>

namespace ringkv {

// One place; registered when the program starts, so that places never reached
// are known too. Reach() is thread-safe.
class CoverageMark {
 public:
  // `name` must outlive the program.
  explicit CoverageMark(const char* name);
  void Reach() { reached_.store(true, std::memory_order_relaxed); }
  bool reached() const { return reached_.load(std::memory_order_relaxed); }
  void Reset() { reached_.store(false, std::memory_order_relaxed); }
  const char* name() const { return name_; }

 private:
  const char* name_;
  std::atomic<bool> reached_{false};
};

// Forgets what was reached.
void ResetMarks();
// Names, sorted, each once.
std::vector<std::string> MarksReached();
std::vector<std::string> AllMarks();

namespace internal {
// Makes the mark of `Name` exist before main().
template <class Name>
struct MarkHolder {
  static inline CoverageMark mark{Name::Text()};
};
}  // namespace internal

}  // namespace ringkv

// Marks this branch as reached, under a name in lower case with dashes.
#define RINGKV_MARK(text)                                         \
  do {                                                            \
    struct RingkvMarkName {                                       \
      static constexpr const char* Text() { return text; }        \
    };                                                            \
    ::ringkv::internal::MarkHolder<RingkvMarkName>::mark.Reach(); \
  } while (false)

#endif  // RINGKV_BASE_MARK_H_
