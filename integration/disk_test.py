"""A disk that fills up under load, is full at a start, and has room again.

The disk is a small tmpfs in a mount namespace of the test's own.
"""

import os
import subprocess
import unittest

import grpc

import harness
import network
from harness import admin_pb2, get, put, values

VALUE = os.urandom(12000)


def mount(options, folder):
    subprocess.run(["mount", *options, "tmpfs", folder], check=True, capture_output=True,
                   text=True)


class DiskTest(harness.TestCase):

    def small_disk(self, size):
        disk = os.path.join(self.folder, "disk")
        os.makedirs(disk)
        mount(["-t", "tmpfs", "-o", f"size={size}"], disk)
        self.addCleanup(lambda: subprocess.run(["umount", "-l", disk], check=False,
                                               capture_output=True))
        return disk

    def node_on(self, disk, *flags):
        node = self.node(flags=["--init", "--disk-reserve", "16MiB", *flags])
        node.data = os.path.join(disk, "data")
        return node

    def fill(self, node):
        """Puts until the node takes no more; returns what was acknowledged."""
        written = []
        for i in range(20000):
            key = b"key %d" % i
            try:
                put(node, key, VALUE + key, timeout=5)
                written.append(key)
            except grpc.RpcError as error:
                self.assertIn(error.code(), [grpc.StatusCode.RESOURCE_EXHAUSTED,
                                             grpc.StatusCode.DEADLINE_EXCEEDED,
                                             grpc.StatusCode.UNAVAILABLE], error.details())
                return written
        return self.fail("the disk never filled up")

    def read_only(self, node):
        status = node.admin.Status(admin_pb2.StatusRequest(), timeout=10)
        return status.nodes[0].read_only

    def test_disk_that_fills_up_loses_nothing_and_goes_on_once_there_is_room(self):
        disk = self.small_disk("96M")
        node = self.node_on(disk, "--memory", "16MiB").start().wait_ready()
        written = self.fill(node)
        self.assertGreater(len(written), 500)
        harness.wait_until(lambda: self.read_only(node), 10, "status says read-only")
        mount(["-o", "remount,size=400M"], disk)

        def takes_puts():
            try:
                put(node, b"after", b"v", timeout=2)
                return True
            except grpc.RpcError:
                return False
        harness.wait_until(takes_puts, 60, "puts are taken again")
        self.assertFalse(self.read_only(node))
        for key in written:
            self.assertEqual([VALUE + key], values(get(node, key)))
        self.assertEqual(0, node.stop())

    def test_stop_ends_in_time_on_a_full_disk_and_a_start_says_why_not(self):
        disk = self.small_disk("96M")
        node = self.node_on(disk, "--memory", "16MiB", "--drain-timeout", "2s")
        node.start().wait_ready()
        written = self.fill(node)
        filler = os.path.join(disk, "filler")

        def fill_the_rest():
            with open(filler, "ab", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(1 << 12))
                except OSError:
                    pass  # full
        fill_the_rest()
        # Ends by itself; whether all could be flushed is another question.
        node.process.terminate()
        node.process.wait(30)
        fill_the_rest()  # what the end of the node has freed
        node.start()
        self.assertEqual(1, node.process.wait(30))
        self.assertRegex(node.tail(), "disk is full: .* bytes are free .* free space there")
        os.remove(filler)
        mount(["-o", "remount,size=400M"], disk)
        node.start().wait_ready()
        for key in written:
            self.assertEqual([VALUE + key], values(get(node, key)))


if __name__ == "__main__":
    network.enter()
    network.ip("link", "set", "lo", "up")
    harness.main()
