"""Runs the Node.js client of integration/node against a real cluster."""

import os
import shutil
import unittest

import harness


class NodeClientTest(harness.TestCase):

    def test_node_client(self):
        node = os.environ.get("NODEJS") or shutil.which("node")
        cluster = self.cluster(3)
        result = harness.run(
            [node, "--test", os.path.join(harness.ROOT, "integration", "node", "client.mjs")],
            seconds=90, env={**os.environ, "RINGKV_ENDPOINTS": cluster.endpoints,
                             "RINGKV_PROTOS": os.path.join(harness.ROOT, "proto")})
        text = (result.stdout + result.stderr).decode()
        self.assertEqual(0, result.returncode, text)
        self.assertRegex(text, r"pass [1-9]")


if __name__ == "__main__":
    unittest.main(verbosity=2)
