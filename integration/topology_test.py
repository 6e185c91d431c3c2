"""The cluster changes its shape while applications go on."""

import random

import harness
from harness import get, put, values
from ringkv.v1 import admin_pb2


class TopologyTest(harness.TopologyTestCase):

    def assert_all_there(self, nodes, acknowledged):
        """Each write can be read through each node, and its replicas are equal."""
        self.wait_same_epoch(nodes)
        for node in nodes:
            harness.wait_hints_delivered(node)
        chance = random.Random(1)
        lost = [key for key, value in acknowledged.items()
                if values(get(chance.choice(nodes), key)) != [value]]
        self.assertEqual([], lost)
        harness.wait_replicas_equal(nodes[0], acknowledged)

    def test_a_node_joins_and_another_leaves_under_load(self):
        cluster = self.cluster(3)
        joiner = self.standby(cluster, "n4", "r1")
        load = harness.Writers(cluster, threads=3, timeout=5)
        load.wait_for(300)

        plan = harness.kvctl_json("plan", "join", "n4", endpoint=cluster[1].client_address)
        self.assertEqual(1, plan["ring_epoch"])
        self.assertGreater(sum(t["ranges"] for t in plan["transfers"]), 0)
        # Without --yes and a terminal nothing begins.
        refused = harness.kvctl("join", "n4", endpoint=cluster[1].client_address, check=False)
        self.assertEqual(1, refused.returncode)
        self.assertIn(b"--yes", refused.stderr)

        self.operate(cluster[1], "join", "n4")
        self.assertEqual(["n1", "n2", "n3", "n4"], self.members(cluster[0]))
        load.nodes.append(joiner)
        load.wait_for(300)
        self.assertEqual({}, load.failed)

        # n1 is the endpoint, too, and stops at the end: kvctl asks the others.
        load.nodes.remove(cluster[0])
        load.wait_for(50)
        self.operate(cluster[0], "decommission", "n1")
        code = cluster[0].process.wait(20)
        self.assertEqual(1, code)
        self.assertIn("has left the ring", cluster[0].log_text())
        load.wait_for(300)
        acknowledged = load.finish()
        self.assert_all_there([cluster[1], cluster[2], joiner], acknowledged)
        self.assertEqual({}, load.failed)

        # It does not come back under its old number.
        cluster[0].start()
        self.assertEqual(1, cluster[0].process.wait(20))
        self.assertIn("has left its ring", cluster[0].log_text())

    def test_a_dead_node_is_removed_and_one_replaced(self):
        cluster = self.cluster(4, racks=2)
        load = harness.Writers(cluster, threads=3, timeout=5)
        load.wait_for(300)
        alive = harness.kvctl("remove-dead", "n4", "--yes",
                              endpoint=cluster[0].client_address, check=False)
        self.assertEqual(1, alive.returncode)
        self.assertIn(b"is alive", alive.stderr)

        load.nodes.remove(cluster[3])
        cluster[3].kill()
        harness.wait_states(cluster[0], admin_pb2.NODE_STATE_DOWN, [4])
        harness.wait_states(cluster[1], admin_pb2.NODE_STATE_DOWN, [4])
        harness.wait_states(cluster[2], admin_pb2.NODE_STATE_DOWN, [4])
        # A node that has just started does not know who is dead.
        self.wait_knows_the_dead(cluster[0], "remove-dead", "n4")
        self.operate(cluster[0], "remove-dead", "n4")
        self.assertEqual(["n1", "n2", "n3"], self.members(cluster[1]))
        load.wait_for(100)
        # Whoever started it again is told.
        cluster[3].start()
        self.assertEqual(1, cluster[3].process.wait(30))
        self.assertIn("has left the ring", cluster[3].log_text())

        # n3 dies with its disk; another node takes its place.
        load.nodes.remove(cluster[2])
        cluster[2].kill()
        for node in cluster.nodes[:2]:
            harness.wait_states(node, admin_pb2.NODE_STATE_DOWN, [3])
        cluster.nodes = cluster.nodes[:2]
        new = self.standby(cluster, "n5", "r1")
        self.wait_knows_the_dead(cluster[1], "replace", "n3", "n5")
        self.operate(cluster[1], "replace", "n3", "n5")
        self.assertEqual(["n1", "n2", "n5"], self.members(cluster[0]))
        load.nodes.append(new)
        load.wait_for(100)
        acknowledged = load.finish()
        self.assert_all_there([cluster[0], cluster[1], new], acknowledged)

    def test_weights_and_keyspaces_change_and_a_join_is_aborted(self):
        cluster = self.cluster(4, racks=1)
        for i in range(200):
            put(cluster[i % 4], b"key %d" % i, b"value %d" % i)
        self.operate(cluster[2], "weight", "n2", "2")
        altered = harness.kvctl_json("keyspace", "alter", "default", "--n", "4", "--w", "3",
                                     "--no-progress", endpoint=cluster[0].client_address)
        self.assertEqual("done", altered["state"])
        listed = harness.kvctl_json("keyspace", "list", endpoint=cluster[3].client_address)
        self.assertEqual(4, listed["keyspaces"][0]["n"])

        # A joiner that dies holds the join up; abort takes it back.
        joiner = self.standby(cluster, "n5", "r1")
        joiner.freeze()
        harness.kvctl("join", "n5", "--yes", "--no-wait",
                      endpoint=cluster[0].client_address)
        running = harness.kvctl_json("operations", endpoint=cluster[1].client_address)
        self.assertEqual("join", running["running"]["kind"])
        other = harness.kvctl("weight", "n1", "2", "--yes",
                              endpoint=cluster[2].client_address, check=False)
        self.assertEqual(1, other.returncode)
        self.assertIn(b"a join runs", other.stderr)
        harness.kvctl("abort", "--yes", endpoint=cluster[3].client_address)
        joiner.thaw()
        self.assertEqual(["n1", "n2", "n3", "n4"], self.members(cluster[0]))
        self.assert_all_there(cluster.nodes, {b"key %d" % i: b"value %d" % i
                                              for i in range(200)})


if __name__ == "__main__":
    harness.main()
