"""What a newcomer types first."""

import os
import re
import subprocess
import unittest

import harness
from harness import kvctl, program

# The quick start listens where a newcomer's node would.
DEFAULT_PORTS = (7700, 7800, 7900)


class QuickStartTest(harness.TestCase):

    def start_without_flags(self):
        for port in DEFAULT_PORTS:
            if not harness.port_is_free(port):
                self.fail(f"port {port} is taken by another process")
        node = self.node("n1", ports=DEFAULT_PORTS)
        node.data = os.path.join(self.folder, "ringkv-data")
        with open(node.log, "ab") as log:
            node.process = subprocess.Popen(
                [*harness.WITH_US, program("kvnode")], cwd=self.folder,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        return node.wait_ready()

    def test_no_flags_give_a_node_that_keeps_what_it_is_told(self):
        node = self.start_without_flags()
        self.assertTrue(os.path.isdir(node.data), "data is kept in ./ringkv-data")
        kvctl("put", "greeting", "hello")
        self.assertEqual(b"hello\n", kvctl("get", "greeting").stdout)
        self.assertEqual(0, node.stop())
        node = self.start_without_flags()
        self.assertEqual(b"hello\n", kvctl("get", "greeting").stdout)
        kvctl("delete", "greeting")
        missing = kvctl("get", "greeting", check=False)
        self.assertEqual((3, b""), (missing.returncode, missing.stdout))

    def test_listens_on_loopback_only(self):
        node = self.start_without_flags()
        sockets = harness.run(["ss", "-H", "-ltnp"]).stdout.decode()
        own = [line.split()[3] for line in sockets.splitlines()
               if f"pid={node.process.pid}," in line]
        self.assertEqual(3, len(own), sockets)
        for address in own:
            self.assertRegex(address, r"^(127\.0\.0\.1|\[::1\]|\[::ffff:127\.0\.0\.1\]):")

    def test_python_lines_of_the_readme_work(self):
        self.start_without_flags()
        with open(os.path.join(harness.ROOT, "README.md"), encoding="utf-8") as file:
            lines = re.search(r"```python\n(.*?)```", file.read(), re.S).group(1)
        stubs = os.path.join(harness.BUILD, "integration", "python")
        result = harness.run(["/usr/bin/python3", "-c", lines],
                             env={**os.environ, "PYTHONPATH": stubs})
        self.assertEqual((0, b"hello\n"), (result.returncode, result.stdout), result.stderr)

    def test_status_and_version(self):
        self.start_without_flags()
        self.assertEqual(0, kvctl("status").returncode)
        for name in ("kvnode", "kvctl"):
            version = harness.run([program(name), "--version"])
            self.assertEqual(0, version.returncode)
            self.assertRegex(version.stdout.decode(), r"\d+\.\d+\.\d+")


if __name__ == "__main__":
    unittest.main(verbosity=2)
