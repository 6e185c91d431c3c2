"""Nodes that die, drain and freeze while applications go on."""

import json
import random
import subprocess

import harness
from harness import get, put, values
from ringkv.v1 import admin_pb2


class SteadyLoad:
    """An application over the C++ client, until finish()."""

    def __init__(self, endpoints, deadline_ms, threads=4):
        self.process = subprocess.Popen(
            [*harness.WITH_US, harness.program("steady_load"), endpoints,
             str(deadline_ms), str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"started\n"

    def finish(self):
        output, _ = self.process.communicate(timeout=60)
        return json.loads(output)


class CrashTest(harness.TestCase):

    def assert_all_there(self, cluster, acknowledged, unread=False):
        """Each write can be read, and a read leaves its replicas equal.

        A coordinator that was killed after its answer hands nothing on: until the
        key is read, a replica that it had not reached may lack the write. With
        `unread` they must be equal before.
        """
        everyone = [n.node_number for n in cluster[0].admin.Status(
            admin_pb2.StatusRequest(), timeout=10, wait_for_ready=True).nodes]
        for node in cluster:
            harness.wait_states(node, admin_pb2.NODE_STATE_ALIVE, everyone)
            harness.wait_hints_delivered(node)
        if unread:
            harness.wait_replicas_equal(cluster[0], acknowledged)
        lost = [key for key, value in acknowledged.items()
                if values(get(cluster[1], key)) != [value]]
        self.assertEqual([], lost)
        for key in acknowledged:
            get(cluster[1], key, r=3)
        harness.wait_replicas_equal(cluster[0], acknowledged)

    def test_kill_under_load_loses_no_acknowledged_write(self):
        cluster = self.cluster(3)
        chance = random.Random(5)
        writers = harness.Writers(cluster)
        try:
            for _ in range(6):
                writers.wait_for(150)
                victim = chance.choice(cluster.nodes)
                victim.kill()
                writers.wait_for(150)
                victim.start().wait_ready()
        finally:
            acknowledged = writers.finish()
        self.assertGreater(len(acknowledged), 1000)
        self.assert_all_there(cluster, acknowledged)

    def test_kill_of_all_nodes_at_once_loses_no_acknowledged_write(self):
        cluster = self.cluster(3)
        for _ in range(3):
            writers = harness.Writers(cluster)
            try:
                writers.wait_for(300)
                for node in cluster:
                    node.kill()
            finally:
                acknowledged = writers.finish()
            for node in cluster:
                node.start()
            for node in cluster:
                node.wait_ready()
            self.assert_all_there(cluster, acknowledged)

    def test_hints_survive_a_kill_of_their_holder(self):
        cluster = self.cluster(4, racks=2)
        cluster[3].kill()
        writers = harness.Writers(cluster)
        writers.wait_for(300)
        acknowledged = writers.finish()
        away = next(n.node_number for n in cluster[0].admin.Status(
            admin_pb2.StatusRequest(), timeout=10).nodes if n.name == cluster[3].name)

        def handed_on():
            copies = [harness.locate(cluster[0], key).copies for key in acknowledged]
            wanted = sum(any(c.node_number == away and c.replica for c in key_copies)
                         for key_copies in copies)
            return harness.hints_for(cluster[0], away) >= wanted and all(
                c.found for key_copies in copies for c in key_copies
                if c.replica and c.node_number != away)
        harness.wait_until(handed_on, 30, "every write is on its replicas or in a hint")
        for node in cluster.nodes[:3]:
            node.kill()
        for node in cluster.nodes[:3]:
            node.start()
        for node in cluster.nodes[:3]:
            node.wait_ready()
        cluster[3].start().wait_ready()
        self.assert_all_there(cluster, acknowledged, unread=True)

    def test_rolling_restart_under_load_shows_no_error(self):
        cluster = self.cluster(3)
        load = SteadyLoad(cluster.endpoints, deadline_ms=5000)
        for _ in range(2):
            for node in cluster:
                self.assertEqual(0, node.stop())
                node.start().wait_ready()
        result = load.finish()
        self.assertEqual((0, 0, 0), (result["failed"], result["unknown"], result["lost"]),
                         result)
        self.assertGreater(result["puts"], 500)

    def test_drain_takes_readiness_away_first_and_ends_with_success(self):
        node = self.single_node()
        put(node, b"k", b"v")
        self.assertEqual(0, node.stop())
        self.assertEqual(0, node.start().wait_ready().stop())
        node.start().wait_ready()
        self.assertEqual([b"v"], values(get(node, b"k")))

    def test_frozen_node_costs_no_call_more_than_its_deadline(self):
        cluster = self.cluster(3)
        load = SteadyLoad(cluster.endpoints, deadline_ms=200)
        writers = harness.Writers(cluster.nodes[:2], threads=1)
        writers.wait_for(100)
        cluster[2].freeze()
        try:
            writers.wait_for(1000)
        finally:
            cluster[2].thaw()
            acknowledged = writers.finish()
        result = load.finish()
        calls = result["puts"] + result["gets"]
        self.assertLess(result["max_ms"], 200 + 100, result)
        self.assertLess(result["failed"] + result["unknown"], 0.01 * calls, result)
        self.assertEqual(0, result["lost"], result)
        self.assert_all_there(cluster, acknowledged)


if __name__ == "__main__":
    harness.main()
