// The one queue of a simulated world: what happens next, and when. Events of
// one instant run in the order in which they were added, so a run depends on
// its seed alone.

#ifndef RINGKV_TESTS_SIM_SCHEDULER_H_
#define RINGKV_TESTS_SIM_SCHEDULER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace ringkv::sim {

// Nanoseconds since the world began. No node sees it: nodes have clocks of
// their own.
using WorldTime = int64_t;

constexpr WorldTime kMicrosecond = 1000;
constexpr WorldTime kMillisecond = 1000 * kMicrosecond;
constexpr WorldTime kSecond = 1000 * kMillisecond;
constexpr WorldTime kForever = INT64_MAX;

// Something to do once: a function object that moves and that holds most
// closures of the simulator in itself. (std::function allocates for all but the
// smallest.)
class Action {
 public:
  Action() = default;
  template <class F,
            class = std::enable_if_t<!std::is_same_v<std::decay_t<F>, Action>>>
  Action(F&& function)  // NOLINT(google-explicit-constructor): as std::function
      : methods_(&kMethods<Held<std::decay_t<F>>>) {
    new (held_) Held<std::decay_t<F>>(std::forward<F>(function));
  }
  Action(Action&& other) noexcept { Take(other); }
  Action& operator=(Action&& other) noexcept {
    if (this != &other) {
      Reset();
      Take(other);
    }
    return *this;
  }
  ~Action() { Reset(); }

  void operator()() { methods_->call(held_); }

 private:
  static constexpr size_t kHeldMax = 64;

  struct Methods {
    void (*call)(void* held);
    void (*move)(void* from, void* to);  // and ends `from`
    void (*end)(void* held);
  };
  template <class F>
  struct Inside {
    explicit Inside(F f) : function(std::move(f)) {}
    void operator()() { function(); }
    F function;
  };
  template <class F>
  struct Outside {
    explicit Outside(F f) : function(std::make_unique<F>(std::move(f))) {}
    void operator()() { (*function)(); }
    std::unique_ptr<F> function;
  };
  template <class F>
  using Held = std::conditional_t<sizeof(F) <= kHeldMax &&
                                      alignof(F) <= alignof(std::max_align_t),
                                  Inside<F>, Outside<F>>;
  template <class H>
  static constexpr Methods kMethods = {
      [](void* held) { (*static_cast<H*>(held))(); },
      [](void* from, void* to) {
        new (to) H(std::move(*static_cast<H*>(from)));
        static_cast<H*>(from)->~H();
      },
      [](void* held) { static_cast<H*>(held)->~H(); }};

  void Take(Action& other) {
    if (other.methods_ != nullptr) other.methods_->move(other.held_, held_);
    methods_ = std::exchange(other.methods_, nullptr);
  }
  void Reset() {
    if (methods_ != nullptr) methods_->end(held_);
    methods_ = nullptr;
  }

  alignas(std::max_align_t) std::byte held_[kHeldMax];
  const Methods* methods_ = nullptr;
};

class Scheduler {
 public:
  WorldTime now() const { return now_; }

  // Runs `action` at `when`, or now if that is past.
  void At(WorldTime when, Action action);
  void After(WorldTime delay, Action action) {
    At(now_ + delay, std::move(action));
  }

  // Runs the next event if it is due by `until`; false if none is (time then
  // stands at `until`).
  bool RunNext(WorldTime until);

  size_t pending() const { return heap_.size(); }
  uint64_t executed() const { return executed_; }

 private:
  struct Slot {
    WorldTime when;
    uint64_t order;
    uint32_t action;
  };
  // A type of its own, so that the heap's functions are compiled around it.
  struct Later {
    bool operator()(const Slot& a, const Slot& b) const {
      return a.when != b.when ? a.when > b.when : a.order > b.order;
    }
  };

  WorldTime now_ = 0;
  uint64_t order_ = 0;
  uint64_t executed_ = 0;
  std::vector<Slot> heap_;
  std::vector<Action> actions_;
  std::vector<uint32_t> free_;
};

}  // namespace ringkv::sim

#endif  // RINGKV_TESTS_SIM_SCHEDULER_H_
