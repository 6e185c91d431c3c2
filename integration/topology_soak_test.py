"""A cluster changes its shape while kvbench reads and writes strictly.

Six nodes in three racks. Before each change the greatest rate of a closed loop is
measured; during it kvbench works at half of that, and checks every read against
what was acknowledged before. Afterwards every record that was written is read
again, and the disks of all nodes are compared with the ring: each key is on its
replicas and nowhere else. Prints a table.

usage: topology_soak_test.py [--keys N] [--seconds S] [--only CHANGE,...]
"""

import argparse
import json
import os
import sys
import time

import harness
import placement
from placement import Shape
from ringkv.v1 import admin_pb2

CHANGES = ["join", "decommission", "remove-dead", "replace", "weight"]
# What balanced placement keeps to: the largest part of a node over the part that is
# fair for it, and how far the parts spread.
LARGEST_OVER_FAIR = 1.003
SPREAD = 0.004
PLAN_OVER_LEAST = 1.01
MOVED_OVER_PLAN = 1.02

arguments = argparse.Namespace(keys=6000, seconds=1.0, only=CHANGES)


class Plan:
    """What must move from one shape to the next, in replicas of segments."""

    def __init__(self, before, after, dead, keys_of_segment):
        self.segments = self.keys = 0
        # Whatever a node gains nobody but a node that holds it can give: a dead one's
        # part comes from as many others as are sure to have every write.
        sources_of_dead = before.n - before.w + 1
        for old, new, keys in zip(before.sets, after.sets, keys_of_segment):
            gains = len(new - old)
            paired = min(gains, len((old - new) - dead))
            sources = paired + (gains - paired) * sources_of_dead
            self.segments += sources
            self.keys += sources * keys
        growth = sum(max(0, after.share(number) - before.share(number))
                     for number in after.names)
        self.least = growth * len(after.sets) * (sources_of_dead if dead else 1)


class TopologySoakTest(harness.TopologyTestCase):

    def kvbench(self, *flags):
        return ["--endpoint", ",".join(n.client_address for n in self.running),
                "--quorum", "strict", "--history", os.path.join(self.folder, "history"),
                "--keys", str(arguments.keys), "--value-size", "100", *flags]

    def bench(self, *flags, seconds=600):
        result = harness.run([harness.program("kvbench"), "-q", "-o", "json",
                              *self.kvbench(*flags)], seconds=seconds)
        self.assertEqual(0, result.returncode, (flags, result.stdout.decode(),
                                                result.stderr.decode()))
        return json.loads(result.stdout)

    def shares(self):
        """(largest part over fair part, spread of the parts) of replicated ownership."""
        ring = harness.kvctl_json("ring", endpoint=self.running[0].client_address)
        self.assertEqual((0, 0), (ring["host_violations"], ring["rack_violations"]))
        # With as many racks as replicas each rack holds one of every key.
        racks = {}
        for node in ring["nodes"]:
            racks.setdefault(node["location"].split("host")[0], []).append(node)
        self.assertEqual(ring["n"], len(racks))
        parts = []
        for nodes in racks.values():
            weight = sum(node["weight"] for node in nodes)
            parts += [node["replicated_share"] * weight / node["weight"]
                      for node in nodes]
        spread = (sum((part - 1) ** 2 for part in parts) / len(parts)) ** 0.5
        return max(parts), spread

    def assert_fair(self):
        largest, spread = self.shares()
        self.assertLessEqual(largest, LARGEST_OVER_FAIR)
        self.assertLessEqual(spread, SPREAD)
        return largest

    def keys_of_segments(self):
        """Waits until each key is on its replicas only."""
        shape = Shape(self.running[0])
        counts = [0] * len(shape.sets)
        tokens, _ = placement.wait_in_place(self.running, arguments.keys)
        for token in tokens.values():
            counts[shape.segment(token)] += 1
        return counts

    def by_name(self, name):
        return next(node for node in self.running if node.name == name)

    def kill(self, name):
        """Returns the dead node, which everybody knows to be dead."""
        node = self.by_name(name)
        number = next(i for i, n in Shape(node).names.items() if n == name)
        self.running.remove(node)
        node.kill()
        for other in self.running:
            harness.wait_states(other, admin_pb2.NODE_STATE_DOWN, [number])
        return node

    # The changes: each returns what kvctl said of it.

    def join(self):
        node = self.standby(self.running, "n7", "r1", flags=self.flags)
        result = self.operate(self.running[1], "join", "n7", seconds=600)
        self.running.append(node)
        return result

    def decommission(self):
        node = self.by_name("n4")
        self.running.remove(node)
        result = self.operate(self.running[1], "decommission", "n4", seconds=600)
        self.assertEqual(1, node.process.wait(30))
        self.assertIn("has left the ring", node.log_text())
        return result

    def remove_dead(self):
        self.kill("n5")
        self.wait_knows_the_dead(self.running[0], "remove-dead", "n5")
        return self.operate(self.running[0], "remove-dead", "n5", seconds=600)

    def replace(self):
        dead = self.kill("n6")
        node = self.standby(self.running, "n8", "r3", flags=self.flags, addresses=[
            dead.client_address, dead.peer_address, dead.http_address])
        self.wait_knows_the_dead(self.running[0], "replace", "n6", "n8")
        result = self.operate(self.running[0], "replace", "n6", "n8", seconds=600)
        self.running.append(node)
        return result

    def weight(self):
        return self.operate(self.running[0], "weight", "n1", "2", seconds=600)

    def change(self, name, keys_of_segment):
        """Makes one change under load; returns its line of the table and the new counts."""
        before, fair_before = Shape(self.running[0]), self.assert_fair()
        most = self.bench("--skip-load", "--workload", "a", "--distribution", "uniform",
                          "--seconds", str(arguments.seconds), "--verify", "none")
        rate = most["run"]["throughput"] / 2
        load = harness.Bench(self.folder, *self.kvbench(
            "--skip-load", "--workload", "a", "--distribution", "uniform",
            "--rate", f"{rate:.0f}", "--seconds", "100000",
            "--in-flight", str(min(10_000, arguments.keys // 2))))
        self.addCleanup(load.stop)
        load.wait_for(1)
        begin = time.monotonic()
        result = getattr(self, name.replace("-", "_"))()
        took = time.monotonic() - begin
        load.wait_for(1)
        done = load.finish()

        after, fair_after = Shape(self.running[0]), self.assert_fair()
        gone = {number for number, node in before.names.items() if number not in after.names}
        plan = Plan(before, after, gone if name in ("remove-dead", "replace") else set(),
                    keys_of_segment)
        counts = self.keys_of_segments()
        moved = sum(node["keys"] for node in result["progress"])
        run, verify = done["run"], done["verify"]
        line = {
            "change": name, "took": f"{took:.1f} s",
            "operation": f"{(result['ended_ms'] - result['started_ms']) / 1000:.1f} s",
            "rate": f"{rate:.0f}/s",
            "operations": run["operations"],
            "failed": run["failed"] + run["unknown"] + verify["failed"],
            "stale": run["stale"] + run["missing"] + run["wrong"],
            "lost": verify["stale"] + verify["missing"] + verify["wrong"],
            "p99": f"{run['latency_us']['p99'] / 1000:.0f} ms",
            "keys moved": moved, "moved/plan": f"{moved / plan.keys:.4f}",
            "plan/least": f"{plan.segments / plan.least:.4f}",
            "largest/fair": f"{fair_before:.4f} {fair_after:.4f}",
        }
        print(json.dumps({**line, "max_ms": run["latency_us"]["max"] / 1000,
                          "resolved": run["resolved"], "verified": verify["operations"],
                          "never_started": run["never_started"],
                          "bytes": sum(node["bytes"] for node in result["progress"]),
                          "errors": run["errors"] + verify["errors"]}), flush=True)
        self.assertEqual([0, 0, 0], [line[c] for c in ("failed", "stale", "lost")],
                         run["errors"] + verify["errors"])
        self.assertLessEqual(moved, MOVED_OVER_PLAN * plan.keys)
        self.assertLessEqual(plan.segments, PLAN_OVER_LEAST * plan.least)
        return line, counts

    def test_changes_under_strict_load(self):
        self.flags = ["--drop-grace", "1s"]
        cluster = self.cluster(6, racks=3, flags=self.flags)
        self.running = list(cluster.nodes)
        self.bench("--load-only", "--verify", "none", seconds=1800)
        counts = self.keys_of_segments()
        table = []
        for name in arguments.only:
            line, counts = self.change(name, counts)
            table.append(line)
        last = self.bench("--skip-load", "--operations", "1", "--verify", "all",
                          seconds=1800)
        self.assertEqual(arguments.keys, last["verify"]["done"])
        widths = {c: max(len(c), *(len(str(line[c])) for line in table)) for c in table[0]}
        for line in [{c: c for c in widths}, *table]:
            print("  ".join(str(line[c]).rjust(w) for c, w in widths.items()), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--keys", type=int, default=arguments.keys,
                        help="records of 100 bytes; the full size is 1000000")
    parser.add_argument("--seconds", type=float, default=arguments.seconds,
                        help="of the closed loop before each change")
    parser.add_argument("--only", type=lambda text: text.split(","), default=CHANGES,
                        help=f"of {','.join(CHANGES)}, in this order")
    arguments, rest = parser.parse_known_args()
    if not set(arguments.only) <= set(CHANGES):
        parser.error(f"--only: {arguments.only} are not all of {CHANGES}")
    sys.argv[1:] = rest
    harness.main()
