"""A majority of the nodes is lost for good, and one survivor goes on."""

import harness
from harness import get, put, values
from ringkv.v1 import admin_pb2


class RecoveryTest(harness.TestCase):

    def recover(self, node, *arguments, check=True):
        return harness.kvctl("recover", *arguments, endpoint=node.client_address,
                             check=check, seconds=60)

    def wait_possible(self, node):
        """A node knows who is dead once it has listened for a few seconds."""
        def possible():
            plan = self.recover(node, "--unsafe", check=False)
            return b"nothing was done" in plan.stderr
        harness.wait_until(possible, 30, lambda: self.recover(
            node, "--unsafe", check=False).stderr.decode())

    def assert_refused(self, node, text, *arguments):
        refused = self.recover(node, *arguments, check=False)
        self.assertEqual(1, refused.returncode, refused.stderr)
        self.assertIn(text, refused.stderr.decode())

    def test_one_of_three_goes_on_and_the_lost_ones_are_refused(self):
        cluster = self.cluster(3)
        survivor = cluster[2]
        for i in range(200):
            put(cluster[i % 3], b"key %d" % i, b"value %d" % i)
        harness.wait_replicas_equal(survivor, [b"key %d" % i for i in range(200)])
        # Wrong use, and no need.
        self.assertEqual(2, self.recover(survivor, check=False).returncode)
        self.assert_refused(survivor, "nothing is lost", "--unsafe", "--yes")
        self.assert_refused(survivor, "a majority of the voters is left", "--unsafe", "--yes",
                            "n3", "n1")
        harness.wait_until(
            lambda: b"is alive" in self.recover(cluster[0], "--unsafe", "--yes", "n1",
                                                check=False).stderr, 30, "a refusal")

        cluster[0].kill()
        cluster[1].kill()
        harness.wait_states(survivor, admin_pb2.NODE_STATE_DOWN, [1, 2])
        self.wait_possible(survivor)
        plan = self.recover(survivor, "--unsafe", check=False)
        self.assertEqual(1, plan.returncode)
        text = plan.stdout.decode()
        self.assertIn("without n1, n2", text)
        self.assertIn("acknowledged writes that only n1, n2 had are lost", text)
        self.assertIn("--yes", plan.stderr.decode())
        done = self.recover(survivor, "--unsafe", "--yes", "--no-progress").stdout.decode()
        self.assertIn("recovered: ring epoch 1001, lineage", done)
        self.assertIn("is done", done)

        for i in range(200):
            self.assertEqual([b"value %d" % i], values(get(survivor, b"key %d" % i)))
        put(survivor, b"new", b"value", quorum=2)
        harness.kvctl("keyspace", "create", "more", endpoint=survivor.client_address)
        survivor.kill()
        survivor.start().wait_ready()
        self.assertEqual([b"value"], values(get(survivor, b"new", quorum=2)))
        self.assertEqual(1, survivor.metric("ringkv_ring_recoveries"))

        # What was lost is found again, with its disks.
        for node in cluster.nodes[:2]:
            node.start()
        for node in cluster.nodes[:2]:
            self.assertEqual(1, node.process.wait(30))
            self.assertIn("was recovered without node number", node.log_text())
        status = survivor.admin.Status(admin_pb2.StatusRequest(), timeout=10)
        self.assertEqual(["n3"], [n.name for n in status.nodes])
        self.assertEqual([b"value 7"], values(get(survivor, b"key 7")))

    def test_two_of_five_share_what_each_of_them_has(self):
        cluster = self.cluster(5)
        keys = [b"key %d" % i for i in range(300)]
        for key in keys:
            put(cluster[0], key, key)
        harness.wait_replicas_equal(cluster[0], keys)
        kept = [key for key in keys
                if {c.node_number for c in harness.locate(cluster[0], key).copies
                    if c.replica} & {1, 2}]
        self.assertGreater(len(kept), 100)
        for node in cluster.nodes[2:]:
            node.kill()
        harness.wait_states(cluster[0], admin_pb2.NODE_STATE_DOWN, [3, 4, 5])
        harness.wait_states(cluster[1], admin_pb2.NODE_STATE_DOWN, [3, 4, 5])
        self.assert_refused(cluster[1], "ask n1 (1)", "--unsafe", "--yes")
        self.wait_possible(cluster[0])
        self.recover(cluster[0], "--unsafe", "--yes", "--no-progress", "n2", "n1")
        harness.wait_replicas_equal(cluster[1], kept)
        for key in kept:
            self.assertEqual([key], values(get(cluster[1], key, r=2)))
            self.assertEqual({1, 2}, {c.node_number for c in
                                      harness.locate(cluster[0], key).copies})


class UpgradeTest(harness.TestCase):

    def test_nothing_is_raised_while_a_member_is_away(self):
        cluster = self.cluster(3)
        status = harness.kvctl_json("upgrade", "status",
                                    endpoint=cluster[1].client_address)
        level = status["feature_level"]
        self.assertEqual([level, level], [status["known_to_all"], status["known_to_any"]])
        unasked = harness.kvctl("upgrade", "finish", endpoint=cluster[0].client_address,
                                check=False)
        self.assertEqual(1, unasked.returncode)
        self.assertIn(b"--yes", unasked.stderr)
        same = harness.kvctl_json("upgrade", "finish", "--yes",
                                  endpoint=cluster[0].client_address)
        self.assertEqual((level, level, 1),
                         (same["feature_level"], same["before"], same["ring_epoch"]))
        cluster[2].kill()
        harness.wait_states(cluster[0], admin_pb2.NODE_STATE_DOWN, [3])
        for wanted, text in ((level + 1, "n1 (1) knows up to"), (level + 1, "n2 (2) knows")):
            refused = harness.kvctl("upgrade", "finish", "--yes", "--level", str(wanted),
                                    endpoint=cluster[0].client_address, check=False)
            self.assertEqual(1, refused.returncode)
            self.assertIn(text, refused.stderr.decode())
        shown = harness.kvctl("upgrade", "status", endpoint=cluster[0].client_address)
        self.assertIn("what n3 will know is not sure", shown.stdout.decode())


if __name__ == "__main__":
    harness.main()
