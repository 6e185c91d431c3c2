#include "tests/sim/key_checker.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ringkv::sim {
namespace {

// A set of places in the list of writes.
class Bits {
 public:
  explicit Bits(size_t size = 0) : words_((size + 63) / 64) {}
  void Set(size_t i) { words_[i / 64] |= 1ull << (i % 64); }
  bool Has(size_t i) const { return (words_[i / 64] >> (i % 64)) & 1; }
  void Add(const Bits& other) {
    for (size_t w = 0; w < words_.size(); ++w) words_[w] |= other.words_[w];
  }
  // Calls `visit(i)` for each member that `others`, of the same size, has not.
  // `visit` may add to `others`.
  template <class F>
  void EachNotIn(const Bits& others, F visit) const {
    for (size_t w = 0; w < words_.size(); ++w) {
      for (uint64_t word = words_[w] & ~others.words_[w]; word != 0;
           word &= word - 1) {
        visit(w * 64 + static_cast<size_t>(__builtin_ctzll(word)));
      }
    }
  }

 private:
  std::vector<uint64_t> words_;
};

// What both kinds of keyspace need: the writes by place, and how to say what is
// wrong.
class Checker {
 public:
  Checker(const KeyHistory& history, const Losses& losses,
          std::vector<Violation>& violations)
      : history_(history), losses_(losses), violations_(violations) {
    for (const Operation& operation : history.operations) {
      if (operation.IsWrite()) {
        place_of_[operation.id] = writes_.size();
        writes_.push_back(&operation);
      } else {
        reads_.push_back(&operation);
      }
      by_id_[operation.id] = &operation;
    }
  }

 protected:
  void Report(const char* check, const Operation& at, std::string text,
              std::vector<OperationId> operations) {
    // One bug tends to break every later read of a key: the first few tell all.
    if (++reported_ > 3) return;
    operations.push_back(at.id);
    violations_.push_back({check, std::move(text),
                           absl::StrCat(history_.keyspace, "/", history_.key),
                           at.ended == kForever ? at.invoked : at.ended,
                           std::move(operations)});
  }

  static std::string Name(const Operation& operation) {
    const char* kind = "?";
    switch (operation.kind) {
      case OperationKind::kGet:
        kind = "get";
        break;
      case OperationKind::kPut:
        kind = operation.blind ? "blind put" : "put";
        break;
      case OperationKind::kDelete:
        kind = "delete";
        break;
      case OperationKind::kScan:
        kind = "scan";
        break;
    }
    return absl::StrCat(operation.strict ? "strict " : "", kind, " #",
                        operation.id);
  }

  static std::string Values(const Operation& read) {
    if (read.shown.empty()) {
      return read.answered_context ? "nothing but a context" : "nothing";
    }
    return absl::StrJoin(read.shown, ", ",
                         [](std::string* out, const Shown& shown) {
                           absl::StrAppend(out, "#", shown.writer);
                         });
  }

  // Places of the writes that `read` showed; reports values that cannot be.
  std::vector<size_t> PlacesShown(const Operation& read, bool report) {
    std::vector<size_t> places;
    for (const Shown& shown : read.shown) {
      const auto it = place_of_.find(shown.writer);
      if (it == place_of_.end()) {
        if (report) {
          Report("P3", read,
                 absl::StrCat(Name(read),
                              " shows a value that nobody wrote "
                              "under this key: ",
                              shown.writer == kNoOperation
                                  ? shown.raw
                                  : absl::StrCat("#", shown.writer)),
                 {});
        }
        continue;
      }
      const Operation& write = *writes_[it->second];
      if (report) {
        if (write.kind != OperationKind::kPut || !write.MayHaveRun()) {
          Report("P3", read,
                 absl::StrCat(Name(read), " shows the value of ", Name(write),
                              ", which was refused"),
                 {write.id});
        } else if (write.invoked >= read.ended) {
          Report("P3", read,
                 absl::StrCat(Name(read), " shows the value of ", Name(write),
                              " before that began"),
                 {write.id});
        }
        if (std::find(places.begin(), places.end(), it->second) !=
            places.end()) {
          Report("P3", read,
                 absl::StrCat(Name(read), " shows the value of ", Name(write),
                              " twice"),
                 {write.id});
        }
      }
      places.push_back(it->second);
    }
    if (report && !read.shown.empty() && !read.answered_context) {
      Report("answer", read,
             absl::StrCat(Name(read), " shows values and no context"), {});
    }
    return places;
  }

  // What any acknowledged write's answer must look like.
  void CheckWriteAnswers() {
    for (const Operation* write : writes_) {
      if (write->outcome != Outcome::kOk) continue;
      const uint32_t acks =
          write->replica_acks + (write->strict ? 0 : write->stand_in_acks);
      if (acks < write->acks_needed) {
        Report("answer", *write,
               absl::StrCat(Name(*write), " was acknowledged by ",
                            write->replica_acks, " replicas and ",
                            write->stand_in_acks, " stand-ins, needs ",
                            write->acks_needed),
               {});
      }
      if (write->answered_context != (write->unresolved_siblings == 0)) {
        Report(
            "answer", *write,
            absl::StrCat(Name(*write), " answers ",
                         write->answered_context ? "a" : "no", " context with ",
                         write->unresolved_siblings, " unresolved siblings"),
            {});
      }
    }
  }

  // Whether a loss may have taken what a strict quorum held since `operation`.
  bool QuorumMayBeLost(const Operation& operation) const {
    return losses_.ServedWithin(operation.invoked, operation.ended) ||
           QuorumMayBeReplaced(operation);
  }
  // Whether as many replicas as acknowledged `write` may have lost it.
  bool AllMayBeLost(const Operation& write) const {
    uint32_t copies = std::max<uint32_t>(1, write.acks_needed);
    if (history_.least_copies > 0) {
      copies = std::min(copies, history_.least_copies);
    }
    return losses_.Within(write.invoked, write.ended) >=
           static_cast<int>(copies);
  }
  // The same for what a strict quorum held, where others have taken the place
  // of those who lost it.
  bool QuorumMayBeReplaced(const Operation& operation) const {
    return history_.least_copies > 0 &&
           losses_.Within(operation.invoked, operation.ended) >=
               static_cast<int>(history_.least_copies);
  }

  // The strict write is a fixed fact for whatever starts later.
  bool SettledBefore(const Operation& write, const Operation& later) const {
    return write.outcome == Outcome::kOk && write.strict &&
           write.ended < later.invoked && !QuorumMayBeLost(write);
  }
  static bool IsSettledRead(const Operation& read) {
    return read.outcome == Outcome::kOk && read.strict &&
           read.kind == OperationKind::kGet;
  }

  // A strict read that shows nothing though something was there for certain
  // must at least hand out the context that follows the delete.
  void CheckContextOfNothing(const Operation& read, bool all_replicas) {
    if (!read.shown.empty() || read.answered_context) return;
    for (const Operation* write : writes_) {
      // The last read may be of what is left of a quorum.
      const bool settled = all_replicas ? !history_.hints_left &&
                                              write->outcome == Outcome::kOk &&
                                              write->ended < read.invoked &&
                                              !AllMayBeLost(*write)
                                        : SettledBefore(*write, read);
      if (!settled) continue;
      Report(all_replicas ? "P1" : "P5", read,
             absl::StrCat(Name(read), " found nothing and no context after ",
                          Name(*write), " was acknowledged"),
             {write->id});
      return;
    }
  }

  const KeyHistory& history_;
  const Losses& losses_;
  std::vector<Violation>& violations_;
  std::vector<const Operation*> writes_;  // by invocation
  std::vector<const Operation*> reads_;
  std::map<OperationId, size_t> place_of_;
  std::map<OperationId, const Operation*> by_id_;
  int reported_ = 0;
};

class SiblingsChecker : public Checker {
 public:
  using Checker::Checker;

  void Run(const Operation* final_read) {
    CheckWriteAnswers();
    BuildCovers();
    std::vector<std::vector<size_t>> shown_by_read;
    for (const Operation* read : reads_) {
      shown_by_read.emplace_back();
      if (read->outcome != Outcome::kOk) continue;
      shown_by_read.back() = PlacesShown(*read, true);
      CheckNoneBesideItsReplacement(*read, shown_by_read.back());
    }
    std::vector<size_t> settled;
    for (size_t i = 0; i < reads_.size(); ++i) {
      if (IsSettledRead(*reads_[i])) settled.push_back(i);
    }
    std::stable_sort(settled.begin(), settled.end(),
                     [this](size_t a, size_t b) {
                       return reads_[a]->ended < reads_[b]->ended;
                     });
    for (const size_t i : settled) CheckStrictRead(i, shown_by_read);
    if (final_read != nullptr) CheckFinal(*final_read);
  }

 private:
  bool MayCover(size_t y, size_t x) const { return may_cover_[y].Has(x); }

  void BuildCovers() {
    const size_t count = writes_.size();
    forgotten_ = {Bits(count), Bits(count)};
    may_cover_.assign(count, Bits(count));
    must_cover_.assign(count, Bits(count));
    for (size_t y = 0; y < count; ++y) {
      const Operation& write = *writes_[y];
      if (!write.MayHaveRun() || write.blind) continue;
      if (write.context_from.has_value()) {
        CoverByContext(y, *write.context_from);
        continue;
      }
      for (size_t x = 0; x < count; ++x) {
        const Operation& other = *writes_[x];
        if (x == y) continue;
        if (other.kind == OperationKind::kPut && other.MayHaveRun() &&
            other.invoked < write.ended) {
          may_cover_[y].Set(x);
        }
        if (x < y && write.strict && SettledBefore(other, write)) {
          if (!other.repeated) must_cover_[y].Set(x);
          must_cover_[y].Add(must_cover_[x]);
        }
      }
    }
  }

  void CoverByContext(size_t y, OperationId source) {
    const Operation& from = *by_id_.at(source);
    std::vector<size_t> seen;
    if (from.IsWrite()) {
      // The answer's object has no sibling but the new value.
      seen.push_back(place_of_.at(source));
    } else {
      seen = PlacesShown(from, false);
    }
    for (const size_t x : seen) {
      if (writes_[x]->kind == OperationKind::kPut) {
        may_cover_[y].Set(x);
        if (!writes_[x]->repeated) must_cover_[y].Set(x);
      }
      must_cover_[y].Add(must_cover_[x]);
    }
  }

  void CheckNoneBesideItsReplacement(const Operation& read,
                                     const std::vector<size_t>& shown) {
    for (const size_t b : shown) {
      for (const size_t x : shown) {
        if (x != b && must_cover_[b].Has(x)) {
          Report("P2", read,
                 absl::StrCat(Name(read), " shows the value of ",
                              Name(*writes_[x]), " beside that of ",
                              Name(*writes_[b]), ", which replaced it"),
                 {writes_[x]->id, writes_[b]->id});
        }
      }
    }
  }

  // What writes that ran, or may have, can have replaced, directly or through
  // others.
  struct Replaced {
    Bits gone;
    Bits visited;  // whose replacements are in `gone`
  };

  // Adds what `frontier`, of visited writes, can have replaced through writes
  // that began before `until`.
  void Spread(std::vector<size_t> frontier, WorldTime until,
              Replaced& replaced) const {
    while (!frontier.empty()) {
      const size_t y = frontier.back();
      frontier.pop_back();
      replaced.gone.Add(may_cover_[y]);
      may_cover_[y].EachNotIn(replaced.visited, [&](size_t x) {
        if (writes_[x]->invoked < until) {
          replaced.visited.Set(x);
          frontier.push_back(x);
        }
      });
    }
  }

  // Follows deletes and expiries, which leave nothing to show, up to `until`;
  // never goes back. Most of what is gone is gone for these, so that it is
  // followed once and not for each read.
  void ForgetUntil(WorldTime until) {
    std::vector<size_t> frontier;
    // Writes are in order of invocation.
    for (; begun_ < writes_.size() && writes_[begun_]->invoked < until;
         ++begun_) {
      const Operation& write = *writes_[begun_];
      const bool by_itself =
          (write.kind == OperationKind::kDelete || write.expires) &&
          write.MayHaveRun();
      if (write.expires && by_itself) forgotten_.gone.Set(begun_);
      // Or it was reached when it had not begun.
      if (by_itself || forgotten_.gone.Has(begun_)) {
        forgotten_.visited.Set(begun_);
        frontier.push_back(begun_);
      }
    }
    Spread(std::move(frontier), until, forgotten_);
  }

  // The writes that may rightly be gone from a read that showed `shown` and
  // ended at `until`. Requires: `until` never goes back.
  Bits MayBeGone(const std::vector<size_t>& shown, WorldTime until) {
    ForgetUntil(until);
    Replaced replaced = forgotten_;
    std::vector<size_t> frontier;
    for (const size_t y : shown) {
      if (replaced.visited.Has(y)) continue;
      replaced.visited.Set(y);
      frontier.push_back(y);
    }
    Spread(std::move(frontier), until, replaced);
    return std::move(replaced.gone);
  }

  void CheckStrictRead(size_t index,
                       const std::vector<std::vector<size_t>>& shown_by_read) {
    const Operation& read = *reads_[index];
    const std::vector<size_t>& shown = shown_by_read[index];
    const Bits gone = MayBeGone(shown, read.ended);
    const auto is_shown = [&shown](size_t x) {
      return std::find(shown.begin(), shown.end(), x) != shown.end();
    };
    // Writes settled before this read, and what they replaced.
    for (size_t x = 0; x < writes_.size(); ++x) {
      const Operation& write = *writes_[x];
      if (write.invoked >= read.invoked) break;
      if (!SettledBefore(write, read)) continue;
      if (write.kind == OperationKind::kPut && !is_shown(x) && !gone.Has(x)) {
        Report("P5", read,
               absl::StrCat(Name(read), " shows ", Values(read), " and misses ",
                            Name(write),
                            ", acknowledged at strict before it began, which "
                            "nothing it could see replaced"),
               {write.id});
      }
      for (const size_t s : shown) {
        if (must_cover_[x].Has(s)) {
          Report("P5", read,
                 absl::StrCat(Name(read), " shows the value of ",
                              Name(*writes_[s]), ", which ", Name(write),
                              " had replaced at strict before it began"),
                 {write.id, writes_[s]->id});
        }
      }
    }
    // Earlier strict reads: what they showed, and what they no longer showed.
    for (size_t earlier = 0; earlier < reads_.size(); ++earlier) {
      const Operation& first = *reads_[earlier];
      if (!IsSettledRead(first) || first.ended >= read.invoked ||
          QuorumMayBeLost(first)) {
        continue;
      }
      for (const size_t x : shown_by_read[earlier]) {
        if (!is_shown(x) && !gone.Has(x)) {
          Report("P5", read,
                 absl::StrCat(Name(read), " shows ", Values(read),
                              " and misses the value of ", Name(*writes_[x]),
                              ", which the earlier ", Name(first), " showed"),
                 {first.id, writes_[x]->id});
        }
        for (const size_t s : shown) {
          if (must_cover_[x].Has(s)) {
            Report("P5", read,
                   absl::StrCat(Name(read), " shows the value of ",
                                Name(*writes_[s]), ", though the earlier ",
                                Name(first), " showed ", Name(*writes_[x]),
                                ", which replaced it"),
                   {first.id, writes_[s]->id, writes_[x]->id});
          }
        }
      }
      for (const size_t s : shown) {
        const Operation& write = *writes_[s];
        const std::vector<size_t>& then = shown_by_read[earlier];
        if (!write.repeated && !write.expires && SettledBefore(write, first) &&
            std::find(then.begin(), then.end(), s) == then.end()) {
          Report("P5", read,
                 absl::StrCat(Name(read), " shows the value of ", Name(write),
                              " again, which the earlier ", Name(first),
                              " no longer showed"),
                 {first.id, write.id});
        }
      }
    }
    CheckContextOfNothing(read, false);
  }

  void CheckFinal(const Operation& read) {
    const std::vector<size_t> shown = PlacesShown(read, true);
    CheckNoneBesideItsReplacement(read, shown);
    std::vector<size_t> there = shown;
    for (const OperationId id : history_.in_hints) {
      const auto it = place_of_.find(id);
      if (it != place_of_.end()) there.push_back(it->second);
    }
    const Bits gone = MayBeGone(there, read.ended);
    for (size_t x = 0; x < writes_.size(); ++x) {
      const Operation& write = *writes_[x];
      if (write.outcome != Outcome::kOk || AllMayBeLost(write)) continue;
      if (write.kind == OperationKind::kPut && !gone.Has(x) &&
          !history_.in_hints.contains(write.id) &&
          std::find(shown.begin(), shown.end(), x) == shown.end()) {
        Report("P1", read,
               absl::StrCat("the end shows ", Values(read), " and misses ",
                            Name(write),
                            ", which was acknowledged and which nothing can "
                            "have replaced"),
               {write.id});
      }
      for (const size_t s : shown) {
        if (must_cover_[x].Has(s) && !history_.hints_left) {
          Report("P2", read,
                 absl::StrCat("the end shows the value of ", Name(*writes_[s]),
                              ", which ", Name(write), " replaced"),
                 {write.id, writes_[s]->id});
        }
      }
    }
    CheckContextOfNothing(read, true);
  }

  std::vector<Bits> may_cover_;   // [y] has x: y may be the first to cover x
  std::vector<Bits> must_cover_;  // [y] has x: if y ran, its clock covers x
  // By deletes and expiries among the first `begun_` writes.
  Replaced forgotten_;
  size_t begun_ = 0;
};

class LwwChecker : public Checker {
 public:
  using Checker::Checker;

  void Run(const Operation* final_read) {
    CheckWriteAnswers();
    for (const Operation* read : reads_) {
      if (read->outcome == Outcome::kOk) LearnStamps(*read);
    }
    if (final_read != nullptr) LearnStamps(*final_read);
    BuildBelow();
    for (const Operation* read : reads_) {
      if (IsSettledRead(*read)) CheckStrictRead(*read);
    }
    if (final_read != nullptr) CheckFinal(*final_read);
  }

 private:
  void LearnStamps(const Operation& read) {
    const std::vector<size_t> places = PlacesShown(read, true);
    if (read.shown.size() > 1) {
      Report("P3", read,
             absl::StrCat(Name(read),
                          " shows more than one value: ", Values(read)),
             {});
    }
    for (const Shown& shown : read.shown) {
      const auto it = place_of_.find(shown.writer);
      if (it == place_of_.end()) continue;
      if (writes_[it->second]->repeated) continue;
      const auto [known, fresh] = stamps_.emplace(it->second, shown.hlc);
      if (!fresh && known->second != shown.hlc) {
        Report("P3", read,
               absl::StrCat(Name(read), " shows ", Name(*writes_[it->second]),
                            " under another timestamp than before"),
               {shown.writer});
      }
    }
  }

  void BuildBelow() {
    const size_t count = writes_.size();
    below_.assign(count, Bits(count));
    floor_.assign(count, 0);
    for (size_t y = 0; y < count; ++y) {
      const Operation& write = *writes_[y];
      const auto known = stamps_.find(y);
      if (write.context_from.has_value()) {
        const Operation& from = *by_id_.at(*write.context_from);
        if (from.IsWrite()) {
          PutBelow(y, place_of_.at(from.id));
        } else {
          for (const Shown& shown : from.shown) {
            floor_[y] = std::max(floor_[y], shown.hlc + 1);
            const auto it = place_of_.find(shown.writer);
            if (it != place_of_.end()) PutBelow(y, it->second);
          }
        }
      } else if (!write.blind && write.strict) {
        for (size_t x = 0; x < y; ++x) {
          if (SettledBefore(*writes_[x], write)) PutBelow(y, x);
        }
      }
      if (known != stamps_.end()) {
        if (known->second < floor_[y]) {
          Report(
              "P3", write,
              absl::StrCat(Name(write), " is stamped below what it had seen"),
              {});
        }
        floor_[y] = std::max(floor_[y], known->second);
      }
    }
  }

  void PutBelow(size_t y, size_t x) {
    if (!writes_[x]->repeated) below_[y].Set(x);
    below_[y].Add(below_[x]);
    floor_[y] = std::max(floor_[y], floor_[x]);
  }

  // Whether write `x` is stamped below write `y` for certain, if both ran.
  bool Below(size_t x, size_t y) const {
    if (below_[y].Has(x)) return true;
    const auto known = stamps_.find(x);
    return known != stamps_.end() && known->second < floor_[y];
  }

  // Whether a read that showed `shown`, or nothing, until `until` lost sight of
  // `y` for certain.
  bool Misses(const std::vector<size_t>& shown, size_t y,
              WorldTime until) const {
    if (!shown.empty()) return shown[0] != y && Below(shown[0], y);
    for (size_t d = 0; d < writes_.size(); ++d) {
      const Operation& write = *writes_[d];
      if ((write.kind == OperationKind::kDelete || write.expires) &&
          write.MayHaveRun() && write.invoked < until &&
          (d == y || !Below(d, y))) {
        return false;
      }
    }
    return true;
  }

  void CheckStrictRead(const Operation& read) {
    const std::vector<size_t> shown = PlacesShown(read, false);
    if (shown.size() > 1) return;
    for (size_t y = 0; y < writes_.size(); ++y) {
      const Operation& write = *writes_[y];
      if (write.invoked >= read.invoked) break;
      if (SettledBefore(write, read) && Misses(shown, y, read.ended)) {
        Report("P5", read,
               absl::StrCat(Name(read), " shows ", Values(read),
                            ", which is older than ", Name(write),
                            ", acknowledged at strict before it began"),
               {write.id});
      }
    }
    for (const Operation* first : reads_) {
      if (!IsSettledRead(*first) || first->ended >= read.invoked ||
          QuorumMayBeLost(*first)) {
        continue;
      }
      for (const size_t y : PlacesShown(*first, false)) {
        if (Misses(shown, y, read.ended)) {
          Report("P5", read,
                 absl::StrCat(Name(read), " shows ", Values(read),
                              ", which is older than what the earlier ",
                              Name(*first), " showed"),
                 {first->id, writes_[y]->id});
        }
      }
    }
    CheckContextOfNothing(read, false);
  }

  void CheckFinal(const Operation& read) {
    const std::vector<size_t> shown = PlacesShown(read, false);
    if (shown.size() > 1) return;
    for (size_t y = 0; y < writes_.size(); ++y) {
      const Operation& write = *writes_[y];
      if (write.outcome != Outcome::kOk || AllMayBeLost(write) ||
          history_.hints_left) {
        continue;
      }
      if (Misses(shown, y, read.ended)) {
        Report("P1", read,
               absl::StrCat("the end shows ", Values(read),
                            ", which is older than ", Name(write),
                            ", which was acknowledged"),
               {write.id});
      }
    }
    CheckContextOfNothing(read, true);
  }

  std::map<size_t, uint64_t> stamps_;  // by place, as reads showed them
  std::vector<Bits> below_;            // [y] has x: x is stamped below y
  std::vector<uint64_t> floor_;        // [y]: y is stamped at least this
};

}  // namespace

void CheckKey(const KeyHistory& history, const Losses& losses,
              const Operation* final_read, std::vector<Violation>& violations) {
  if (history.lww) {
    LwwChecker(history, losses, violations).Run(final_read);
  } else {
    SiblingsChecker(history, losses, violations).Run(final_read);
  }
}

}  // namespace ringkv::sim
