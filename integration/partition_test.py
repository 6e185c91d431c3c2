"""Five nodes, each on a host of its own, and networks that break."""

import threading
import time

import grpc

import network

if __name__ == "__main__":
    network.enter()

import harness  # noqa: E402
from harness import get, put, values  # noqa: E402
from ringkv.v1 import admin_pb2, kv_pb2  # noqa: E402

LEFT, RIGHT = (1, 2), (3, 4, 5)


class PartitionTest(harness.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.network = network.Network(5, LEFT)

    def setUp(self):
        super().setUp()
        self.network.heal()
        nodes = [self.node(f"n{i}", namespace=self.network.namespace(i),
                           addresses=self.network.addresses(i), flags=["--insecure"],
                           location=f"zone=z,rack=r{(i - 1) % 3 + 1},host=h{i}")
                 for i in range(1, 6)]
        cluster = harness.Cluster(self.folder, nodes).start().init()
        status = cluster[0].admin.Status(admin_pb2.StatusRequest(), timeout=10)
        by_name = {node.name: node for node in nodes}
        # By node number, which init gives in an order of its own.
        self.by_number = {n.node_number: by_name[n.name] for n in status.nodes}
        number = {node.name: i for i, node in self.by_number.items()}
        self.left = [number[f"n{i}"] for i in LEFT]
        self.right = [number[f"n{i}"] for i in RIGHT]
        for i in number.values():
            harness.wait_states(cluster[0], admin_pb2.NODE_STATE_ALIVE, [i])

    def write(self, node, key, value):
        """Puts until the outcome is known; returns how often it was not.

        What was on its way to a node that is cut off just then may take effect or
        not; it is put again, with the context of a read where the key can be read
        (not so if all its replicas are on the other side). An equal value that was
        written twice shows once.
        """
        fields, unknown = {}, 0
        while True:
            try:
                put(node, key, value, timeout=5, **fields)
                return unknown
            except grpc.RpcError as error:
                if "may still take effect" not in error.details() or unknown > 3:
                    raise
                unknown += 1
                try:
                    fields = {"context": get(node, key).context}
                except grpc.RpcError:
                    fields = {}

    def write_everywhere(self, count, tag, acknowledged):
        """Every node takes writes of its own keys and of keys that all write.

        Adds to acknowledged[key][node number] the values that were acknowledged,
        in order; fails on the first refusal. Returns the number of puts whose
        outcome was unknown at first.
        """
        errors, unknown = [], []
        lock = threading.Lock()

        def writer(number, node):
            for i in range(count):
                for key in (b"own %d %d" % (number, i), b"shared %d" % i):
                    value = b"%s %d %d" % (tag, number, i)
                    try:
                        unknown.append(self.write(node, key, value))
                    except grpc.RpcError as error:
                        errors.append((number, key, error.code(), error.details()))
                        return
                    with lock:
                        by_writer = acknowledged.setdefault(key, {})
                        by_writer.setdefault(number, []).append(value)

        threads = [threading.Thread(target=writer, args=item)
                   for item in self.by_number.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        self.assertEqual([], errors)
        return sum(unknown)

    def missing_values(self, acknowledged, before, reader):
        """What was acknowledged and is neither there nor followed by another.

        What a writer wrote last to a key of its own must be there. Of a key that
        all wrote, one value of each side must be: no writer saw the other side. A
        value from before the cut may stay beside them, if no writer could see it.
        """
        missing = []
        for key, by_writer in acknowledged.items():
            found = set(values(get(reader, key, r=3)))
            everything = {value for writers in (by_writer, before.get(key, {}))
                          for written in writers.values() for value in written}
            self.assertLessEqual(found, everything)
            if key.startswith(b"own"):
                (written,) = by_writer.values()
                if written[-1] not in found:
                    missing.append((key, written[-1], found))
                continue
            for side in (self.left, self.right):
                if not found & {v for number in side for v in by_writer.get(number, [])}:
                    missing.append((key, side, found))
        return missing

    def wait_healed(self):
        everyone = list(self.by_number)
        for node in self.by_number.values():
            harness.wait_states(node, admin_pb2.NODE_STATE_ALIVE, everyone)
        for node in self.by_number.values():
            harness.wait_hints_delivered(node)

    def test_both_sides_go_on_writing_and_replicas_become_equal_without_a_read(self):
        before = {}
        self.write_everywhere(20, b"before", before)
        self.network.cut()
        acknowledged = {}
        # At once, so that the first writes meet peers that are not known to be away.
        self.write_everywhere(60, b"during", acknowledged)
        one_left, one_right = self.by_number[self.left[0]], self.by_number[self.right[0]]
        harness.wait_states(one_left, admin_pb2.NODE_STATE_DOWN, self.right)
        harness.wait_states(one_right, admin_pb2.NODE_STATE_DOWN, self.left)
        self.assertEqual(0, self.write_everywhere(30, b"later", acknowledged),
                         "once the cut is known, every write is acknowledged at once")
        self.network.heal()
        self.wait_healed()

        harness.wait_replicas_equal(one_left, sorted(acknowledged))
        for copy in harness.locate(one_right, b"shared 0").copies:
            self.assertTrue(copy.replica, f"hints are gone: {copy}")
        self.assertEqual([], self.missing_values(acknowledged, before, one_left))

    def test_strict_minority_refuses_with_the_counts(self):
        keys = [b"strict %d" % i for i in range(60)]
        node = self.by_number[self.right[0]]
        homes = {key: {c.node_number for c in harness.locate(node, key).copies if c.replica}
                 for key in keys}
        for key in keys:
            put(node, key, b"before", quorum=kv_pb2.QUORUM_STRICT)
        self.network.cut()
        for side, away in ((self.left, self.right), (self.right, self.left)):
            for number in side:
                harness.wait_states(self.by_number[number], admin_pb2.NODE_STATE_DOWN, away)
        refused = 0
        for key in keys:
            for side in (self.left, self.right):
                node = self.by_number[side[0]]
                here = len(homes[key] & set(side))
                request = kv_pb2.PutRequest(key=key, value=b"during",
                                            quorum=kv_pb2.QUORUM_STRICT)
                if here >= 2:
                    node.kv.Put(request, timeout=10)
                    continue
                refused += 1
                message = self.refused(grpc.StatusCode.UNAVAILABLE, node.kv.Put, request)
                self.assertRegex(message, r"required\D{0,4}2")
                self.assertRegex(message, r"received\D{0,4}[01]")
                message = self.refused(
                    grpc.StatusCode.UNAVAILABLE, node.kv.Get,
                    kv_pb2.GetRequest(key=key, quorum=kv_pb2.QUORUM_STRICT))
                self.assertRegex(message, r"required\D{0,4}2")
        self.assertEqual(len(keys), refused, "each key has its quorum on one side only")
        self.network.heal()
        self.wait_healed()
        for key in keys:
            found = values(get(node, key, quorum=kv_pb2.QUORUM_STRICT))
            self.assertEqual([b"during"], found)

    def test_calls_keep_their_deadline_when_packets_to_one_node_vanish(self):
        host = 4
        away = next(n for n, node in self.by_number.items() if node.name == f"n{host}")
        others = [node for number, node in self.by_number.items() if number != away]
        self.network.drop(host)
        self.addCleanup(self.network.restore, host)
        slowest, failed = 0.0, 0
        for i in range(200):
            begin = time.monotonic()
            try:
                put(others[i % 4], b"drop %d" % i, b"v", timeout=1.0)
            except grpc.RpcError as error:
                self.assertIn(error.code(), (grpc.StatusCode.DEADLINE_EXCEEDED,
                                             grpc.StatusCode.UNAVAILABLE))
                failed += 1
            slowest = max(slowest, time.monotonic() - begin)
        self.assertLess(slowest, 1.2)
        self.assertLessEqual(failed, 6, "only what was on its way to the node is unknown")
        for node in others:
            harness.wait_states(node, admin_pb2.NODE_STATE_DOWN, [away], seconds=20)
        self.network.restore(host)
        for node in others:
            harness.wait_states(node, admin_pb2.NODE_STATE_ALIVE, [away], seconds=10)
        harness.wait_hints_delivered(others[0])
        harness.wait_replicas_equal(others[0], [b"drop %d" % i for i in range(200)])


if __name__ == "__main__":
    harness.main()
