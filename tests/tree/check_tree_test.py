"""Feeds small bad trees to check_tree and expects each fault to be found."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_tree  # noqa: E402


def guarded(path, body):
    guard = "RINGKV_" + "".join(c if c.isalnum() else "_" for c in path.upper()) + "_"
    return f"#ifndef {guard}\n#define {guard}\n{body}\n#endif\n"


class CheckTreeTest(unittest.TestCase):

    def findings(self, files):
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                full = os.path.join(root, path)
                os.makedirs(os.path.dirname(full) or root, exist_ok=True)
                with open(full, "w", encoding="utf-8") as file:
                    file.write(text)
            return [f for f in check_tree.check_tree(root)]

    def assert_rejects(self, path, text, reason, line=None):
        found = [f for f in self.findings({path: text}) if not f.warning]
        self.assertTrue(any(reason in f.text for f in found),
                        f"{text!r} in {path} gave {[str(f) for f in found]}")
        if line is not None:
            self.assertIn(line, [f.line for f in found])

    def assert_accepts(self, path, text):
        self.assertEqual([], [str(f) for f in self.findings({path: text})])

    def test_include_upwards_is_rejected(self):
        for path, include in [
                ("base/a.cc", "storage/engine.h"),
                ("base/a.cc", "ringkv/v1/kv.pb.h"),
                ("storage/version/a.cc", "membership/ring/ring.h"),
                ("storage/a.cc", "ringkv/v1/kv.pb.h"),
                ("membership/ring/a.cc", "membership/control/control.h"),
                ("membership/control/a.cc", "server/shard/shard.h"),
                ("membership/control/a.cc", "storage/engine.h"),
                ("server/coordinator/a.cc", "client/client.h"),
                ("server/coordinator/a.cc", "ringkv/v1/kv.pb.h"),
                ("client/a.cc", "server/shard/shard.h"),
                ("client/a.cc", "storage/engine.h"),
                ("client/a.cc", "membership/control/control.h"),
        ]:
            with self.subTest(path=path, include=include):
                self.assert_rejects(path, f'\n#include "{include}"\n',
                                    "may include only", line=2)

    def test_include_downwards_is_accepted(self):
        for path, include in [
                ("base/a.cc", "base/time.h"),
                ("storage/a.cc", "base/time.h"),
                ("membership/ring/a.cc", "ringkv/v1/ring.pb.h"),
                ("membership/control/a.cc", "membership/ring/ring.h"),
                ("server/coordinator/a.cc", "storage/engine.h"),
                ("server/codec/a.cc", "ringkv/internal/v1/peer.pb.h"),
                ("server/rpc/a.cc", "ringkv/v1/kv.grpc.pb.h"),
                ("server/rpc/a.cc", "storage/rocksdb/rocksdb_engine.h"),
                ("server/kvnode.cc", "server/rpc/node.h"),
                ("client/a.cc", "membership/ring/ring.h"),
                ("client/a.cc", "ringkv/v1/kv.grpc.pb.h"),
                ("tests/server/a_test.cc", "server/shard/shard.h"),
        ]:
            with self.subTest(path=path, include=include):
                self.assert_accepts(path, f'#include "{include}"\n')

    def test_machine_that_includes_an_adapter_is_rejected(self):
        self.assert_rejects("server/shard/a.cc", '#include "server/rpc/stream.h"\n',
                            "is an adapter")
        self.assert_rejects("server/shard/a.cc",
                            '#include "storage/rocksdb/rocksdb_engine.h"\n',
                            "is an adapter")

    def test_include_of_a_test_is_rejected(self):
        self.assert_rejects("base/a.cc", '#include "tests/sim/world.h"\n',
                            "includes a test")

    def test_grpc_and_rocksdb_stay_in_their_adapters(self):
        self.assert_rejects("server/shard/a.cc", "#include <grpcpp/grpcpp.h>\n", "gRPC")
        self.assert_rejects("storage/rocksdb/a.cc", "#include <grpcpp/grpcpp.h>\n", "gRPC")
        self.assert_rejects("server/rpc/a.cc", '#include "rocksdb/db.h"\n', "RocksDB")
        self.assert_rejects("client/a.cc", "#include <rocksdb/db.h>\n", "RocksDB")
        self.assert_accepts("storage/rocksdb/a.cc", "#include <rocksdb/db.h>\n")
        self.assert_accepts("server/rpc/a.cc", "#include <grpcpp/grpcpp.h>\n")

    def test_headers_of_the_world_are_rejected_in_machines(self):
        for header in ["<thread>", "<mutex>", "<condition_variable>", "<future>",
                       "<chrono>", "<random>", "<ctime>", "<unistd.h>",
                       "<sys/socket.h>", "<fstream>", "<spdlog/spdlog.h>",
                       '"base/mutex.h"', '"absl/synchronization/mutex.h"', '"absl/time/clock.h"',
                       '"absl/random/random.h"']:
            for path in ["base/a.cc", "storage/hints/a.cc", "membership/ring/a.cc",
                         "server/coordinator/a.cc"]:
                with self.subTest(path=path, header=header):
                    self.assert_rejects(path, f"#include {header}\n",
                                        "outside an adapter")
            with self.subTest(header=header):
                self.assert_accepts("server/rpc/a.cc", f"#include {header}\n")
                self.assert_accepts("base/clock_system.cc", f"#include {header}\n")

    def test_words_of_the_world_are_rejected_in_machines(self):
        for line, reason in [
                ("std::thread t(f);", "thread"),
                ("std::jthread t(f);", "thread"),
                ("std::mutex m;", "lock"),
                ("std::lock_guard<M> l(m);", "lock"),
                ("absl::Mutex m;", "lock"),
                ("auto f = std::async(g);", "thread"),
                ("auto t = std::chrono::steady_clock::now();", "clock"),
                ("auto t = system_clock::now();", "clock"),
                ("auto t = absl::Now();", "clock"),
                ("auto t = absl::GetCurrentTimeNanos();", "clock"),
                ("auto t = time(nullptr);", "clock"),
                ("clock_gettime(CLOCK_MONOTONIC, &ts);", "clock"),
                ("std::random_device d;", "chance"),
                ("std::mt19937_64 g(1);", "chance"),
                ("std::shuffle(a, b, g);", "chance"),
                ("absl::BitGen g;", "chance"),
                ("int x = rand();", "chance"),
                ("srand(1);", "chance"),
                ("std::this_thread::sleep_for(x);", "sleep"),
                ("absl::SleepFor(x);", "sleep"),
                ("usleep(5);", "sleep"),
                ("sleep(5);", "sleep"),
        ]:
            for path in ["base/a.cc", "server/coordinator/a.cc", "membership/control/a.cc"]:
                with self.subTest(path=path, line=line):
                    self.assert_rejects(path, f"// first\n{line}\n", reason, line=2)
            with self.subTest(line=line):
                self.assert_accepts("server/rpc/a.cc", line + "\n")

    def test_comments_and_strings_are_no_code(self):
        self.assert_accepts("base/a.cc", "// std::thread would be wrong here\n")
        self.assert_accepts("base/a.cc", "/* absl::Now()\n absl::SleepFor */\n")
        self.assert_accepts("base/a.cc", 'auto s = "std::mutex \\" absl::Now()";\n')
        self.assert_accepts("base/a.cc", 'auto s = R"x(absl::Now() ")x";\n')
        self.assert_rejects("base/a.cc", "int a = 1'000; char c = '\"'; absl::Now();\n",
                            "clock")

    def test_words_that_only_look_alike_are_accepted(self):
        self.assert_accepts("base/a.cc", "auto t = event.time(0); Operand(a); "
                            "x.sleep(1); strand(2);\n")

    def test_iteration_over_hashed_containers_is_rejected(self):
        for declaration in ["std::unordered_map<int, std::vector<int>> peers_;",
                            "absl::flat_hash_set<Key> peers_;",
                            "absl::node_hash_map<A, absl::flat_hash_map<B, C>> peers_;"]:
            for walk in ["for (auto& [k, v] : peers_) Use(k);",
                         "for (const auto& p : this->peers_) Use(p);",
                         "auto it = peers_.begin();"]:
                with self.subTest(declaration=declaration, walk=walk):
                    self.assert_rejects("server/shard/a.cc",
                                        f"{declaration}\n{walk}\n", "hashed", line=2)
        self.assert_accepts("server/shard/a.cc", "std::map<int, int> peers_;\n"
                            "for (auto& p : peers_) Use(p);\n")
        self.assert_accepts("server/shard/a.cc", "std::unordered_map<int, int> peers_;\n"
                            "auto it = peers_.find(3); peers_.erase(it);\n")

    def test_iteration_over_a_hashed_member_of_the_header_is_rejected(self):
        found = self.findings({
            "server/shard/a.h": guarded("server/shard/a.h",
                                        "absl::flat_hash_map<int, int> peers_;"),
            "server/shard/a.cc": "for (auto& p : peers_) Use(p);\n"})
        self.assertEqual(["server/shard/a.cc"], [f.path for f in found])

    def test_include_guard_follows_the_path(self):
        self.assert_rejects("base/a.h", "#ifndef A_H\n#define A_H\n#endif\n", "guard")
        self.assert_accepts("base/a.h", guarded("base/a.h", ""))

    def test_unfinished_work_is_rejected(self):
        for word in ["TODO", "FIXME(me)", "XXX", "HACK"]:
            for path in ["base/a.cc", "docs/a.md", "scripts/a", "proto/a.proto"]:
                with self.subTest(path=path, word=word):
                    self.assert_rejects(path, f"\n# // {word}: later\n", "unfinished", 2)
        self.assert_rejects("base/a.cc", 'return Error("Not implemented");\n', "unfinished")

    def test_sleeping_and_skipped_tests_are_rejected(self):
        self.assert_rejects("tests/a_test.cc", "absl::SleepFor(x);\n", "wait")
        self.assert_rejects("integration/a.py", "time.sleep(1)\n", "wait")
        self.assert_rejects("tests/a_test.cc", "TEST(A, DISABLED_B) {}\n", "not run")
        self.assert_rejects("tests/a_test.cc", "GTEST_SKIP();\n", "not run")

    def test_long_files_only_warn(self):
        found = self.findings({"base/a.cc": "int a;\n" * (check_tree.LINES_MAX + 1)})
        self.assertEqual([True], [f.warning for f in found])


if __name__ == "__main__":
    unittest.main()
