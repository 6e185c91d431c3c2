// Merge against a naive oracle: sets of the writes that went into each object,
// with what each write had seen. An object must hold just those of its writes
// that no other of its writes had seen. Executions are random, with crashes,
// lost disks, late and repeated messages; actors are continued by the `own`
// rule.

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "gtest/gtest.h"
#include "storage/version/object.h"

namespace ringkv {
namespace {

// Bit w stands for write number w of an execution.
using Writes = uint64_t;
constexpr int kWritesMax = 60;
constexpr int kNodes = 3;

struct Held {
  Object object;
  Writes known = 0;
};

struct Node {
  std::optional<Held> held;
  std::optional<Held> durable;
  std::optional<OwnRecord> own;
  uint64_t start_id = 0;
};

class Execution {
 public:
  explicit Execution(uint64_t seed) : random_(seed), nodes_(kNodes) {
    for (Node& node : nodes_) node.start_id = random_.Next();
  }

  void Run(int steps) {
    for (int step = 0; step < steps; ++step) {
      Step();
      for (const Node& node : nodes_) {
        if (node.held.has_value()) Check(*node.held);
        if (testing::Test::HasFailure()) return;
      }
    }
    CheckAlgebra();
  }

 private:
  void Step() {
    const int at = static_cast<int>(random_.Uniform(kNodes));
    Node& node = nodes_[at];
    switch (random_.Uniform(12)) {
      case 0:
      case 1:
      case 2:
        Put(at);
        return;
      case 3:
        Delete(at);
        return;
      case 4:
      case 5:
        if (node.held.has_value()) sent_.push_back(*node.held);
        return;
      case 6:
      case 7:
      case 8:
        if (!sent_.empty()) {
          Receive(node, sent_[random_.Uniform(sent_.size())]);
        }
        return;
      case 9:
        node.durable = node.held;
        return;
      case 10:
        if (node.held.has_value()) contexts_.push_back(*node.held);
        return;
      case 11:
        if (random_.Chance(0.5)) Restart(node);
        return;
    }
  }

  // Crash: back to the durable state, or to no disk at all.
  void Restart(Node& node) {
    if (random_.Chance(0.1)) node.durable.reset();
    node.held = node.durable;
    node.own.reset();
    node.start_id = random_.Next();
  }

  void Receive(Node& node, const Held& from) {
    if (!node.held.has_value()) {
      node.held = from;
      return;
    }
    MergeReport report;
    node.held->object = Merge(node.held->object, from.object, &report);
    node.held->known |= from.known;
    EXPECT_EQ(report.equal_dots_with_unequal_values, 0);
  }

  Held RandomContext() {
    if (contexts_.empty() || random_.Chance(0.2)) return {};
    return contexts_[random_.Uniform(contexts_.size())];
  }

  void Put(int at) {
    Node& node = nodes_[at];
    if (past_.size() >= kWritesMax) return;
    const Held context = RandomContext();
    if (!node.own.has_value()) {
      node.own = OwnRecord{node.start_id, random_.Next(), 0};
    }
    ++node.own->counter;
    const size_t write = past_.size();
    past_.push_back(context.known);
    deletes_.push_back(false);
    const Dot dot{{NodeNumber{static_cast<uint32_t>(at + 1)}, node.own->birth},
                  node.own->counter};
    const Stamp stamp = RandomStamp(at);
    const Object* local = node.held.has_value() ? &node.held->object : nullptr;
    Object object = ApplyPut(local, context.object.clock,
                             {dot, stamp, 0, absl::StrCat(write)});
    const Writes base = node.held.has_value() ? node.held->known : 0;
    node.held =
        Held{std::move(object), base | context.known | Writes{1} << write};
    // What leaves before it is durable may outlive the crash of its maker.
    if (random_.Chance(0.5)) sent_.push_back(*node.held);
  }

  void Delete(int at) {
    Node& node = nodes_[at];
    if (past_.size() >= kWritesMax) return;
    const Held context = RandomContext();
    if (context.known == 0) return;
    const size_t write = past_.size();
    past_.push_back(context.known);
    deletes_.push_back(true);
    const Object* local = node.held.has_value() ? &node.held->object : nullptr;
    Object object = ApplyDelete(local, context.object.clock, RandomStamp(at));
    const Writes base = node.held.has_value() ? node.held->known : 0;
    node.held =
        Held{std::move(object), base | context.known | Writes{1} << write};
  }

  Stamp RandomStamp(int at) {
    return {HlcTimestamp{1 + random_.Uniform(1000)},
            NodeNumber{static_cast<uint32_t>(at + 1)}};
  }

  std::vector<std::string> Ideal(Writes known) const {
    std::vector<std::string> values;
    Writes seen = 0;
    for (size_t w = 0; w < past_.size(); ++w) {
      if (known >> w & 1) seen |= past_[w];
    }
    for (size_t w = 0; w < past_.size(); ++w) {
      if ((known >> w & 1) && !(seen >> w & 1) && !deletes_[w]) {
        values.push_back(absl::StrCat(w));
      }
    }
    std::sort(values.begin(), values.end());
    return values;
  }

  void Check(const Held& held) const {
    std::vector<std::string> values;
    for (const Sibling& sibling : held.object.siblings) {
      values.push_back(sibling.value);
    }
    std::sort(values.begin(), values.end());
    ASSERT_EQ(values, Ideal(held.known));
    const auto decoded = DecodeObject(EncodeObject(held.object));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    ASSERT_EQ(*decoded, held.object);
  }

  void CheckAlgebra() {
    if (sent_.empty()) return;
    const auto pick = [this]() -> const Object& {
      return sent_[random_.Uniform(sent_.size())].object;
    };
    for (int i = 0; i < 20; ++i) {
      const Object& a = pick();
      const Object& b = pick();
      const Object& c = pick();
      ASSERT_EQ(Merge(a, a), a);
      ASSERT_EQ(Merge(a, b), Merge(b, a));
      ASSERT_EQ(Merge(Merge(a, b), c), Merge(a, Merge(b, c)));
      ASSERT_EQ(Merge(Merge(a, b), b), Merge(a, b));
    }
  }

  SeededRandom random_;
  std::vector<Node> nodes_;
  std::vector<Held> sent_;
  std::vector<Held> contexts_;
  std::vector<Writes> past_;  // what write w had seen
  std::vector<bool> deletes_;
};

TEST(MergePropertyTest, ObjectsHoldTheIdealSiblingsOfTheirWrites) {
  for (uint64_t seed = 1; seed <= 600; ++seed) {
    SCOPED_TRACE(seed);
    Execution(seed).Run(80);
    if (HasFailure()) return;
  }
}

Object RandomLww(Random& random) {
  const Stamp stamp{HlcTimestamp{random.Uniform(3)},
                    NodeNumber{static_cast<uint32_t>(random.Uniform(3))}};
  if (random.Chance(0.3)) return MakeLwwTombstone(stamp);
  return MakeLww(stamp, static_cast<int64_t>(random.Uniform(2)),
                 std::string(random.Uniform(3), 'v'));
}

TEST(MergePropertyTest, LwwIsTheMaximumByStampThenBytesInAnyOrder) {
  SeededRandom random(5);
  for (int round = 0; round < 2000; ++round) {
    std::vector<Object> objects;
    for (int i = 0; i < 5; ++i) objects.push_back(RandomLww(random));
    const Object expected = *std::max_element(
        objects.begin(), objects.end(), [](const Object& a, const Object& b) {
          if (a.newest != b.newest) return a.newest < b.newest;
          return EncodeObject(a) < EncodeObject(b);
        });
    Object forward = objects.front();
    Object backward = objects.back();
    for (size_t i = 0; i < objects.size(); ++i) {
      forward = Merge(forward, objects[i]);
      backward = Merge(objects[objects.size() - 1 - i], backward);
    }
    ASSERT_EQ(forward, expected);
    ASSERT_EQ(backward, expected);
  }
}

// Bytes near valid ones: whatever decodes must encode to the same bytes.
TEST(CodecFuzzTest, MutatedBytesAreRefusedOrCanonical) {
  SeededRandom random(11);
  Object object;
  for (uint32_t node = 1; node <= 4; ++node) {
    object = ApplyPut(&object, {},
                      {{{NodeNumber{node}, node}, node + 126},
                       {HlcTimestamp{node}, NodeNumber{node}},
                       node,
                       std::string(node * 3, 'v')});
  }
  const std::vector<std::string> corpus = {
      EncodeObject(object), EncodeObject(Object{}),
      EncodeObject(MakeLww({HlcTimestamp{3}, NodeNumber{300}}, 9, "value")),
      EncodeStored(OwnRecord{1, 2, 300}, EncodeObject(object)),
      EncodeContext(ContextOf(object, KeyspaceId{1}, "k"))};
  int decoded_objects = 0;
  for (int round = 0; round < 60000; ++round) {
    std::string bytes = corpus[random.Uniform(corpus.size())];
    const uint64_t mutations = 1 + random.Uniform(4);
    for (uint64_t i = 0; i < mutations; ++i) {
      const size_t at = random.Uniform(bytes.size() + 1);
      switch (random.Uniform(4)) {
        case 0:
          if (at < bytes.size()) bytes[at] = static_cast<char>(random.Next());
          break;
        case 1:
          bytes.resize(at);
          break;
        case 2:
          bytes.insert(at, 1, static_cast<char>(random.Next()));
          break;
        case 3:
          if (at < bytes.size()) {
            bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.Uniform(8)));
          }
          break;
      }
    }
    const auto as_object = DecodeObject(bytes);
    if (as_object.ok()) {
      ++decoded_objects;
      ASSERT_EQ(EncodeObject(*as_object), bytes);
    }
    const auto as_stored = DecodeStored(bytes);
    if (as_stored.ok()) {
      ASSERT_EQ(EncodeStored(as_stored->own, as_stored->object), bytes);
    }
    const auto as_context = DecodeContext(bytes, KeyspaceId{1}, "k");
    if (as_context.ok()) {
      ASSERT_EQ(EncodeContext(*as_context), bytes);
    }
  }
  // Flips in values and stamps keep the form: the loop must meet such bytes.
  EXPECT_GT(decoded_objects, 1000);
}

}  // namespace
}  // namespace ringkv
