"""Two operators change the cluster at the same moment, on two nodes.

RINGKV_TEST_SIZE=full runs 50 rounds instead of 5. RINGKV_TEST_SEED sets the seed.
"""

import random
import threading

import grpc
import harness
from ringkv.v1 import admin_pb2, kv_pb2, ring_pb2


class RingWatch:
    """Every ring that any node has told of, by epoch. Two for one epoch is a split."""

    def __init__(self, nodes):
        self.lock = threading.Lock()
        self.rings = {}
        self.splits = []
        self.stop = threading.Event()
        self.threads = []
        for node in nodes:
            self.add(node)

    def add(self, node):
        thread = threading.Thread(target=self._watch, args=(node,), daemon=True)
        self.threads.append(thread)
        thread.start()

    def _watch(self, node):
        known = 0
        while not self.stop.is_set() and node.running():
            try:
                for answer in node.kv.WatchRing(
                        kv_pb2.WatchRingRequest(known_epoch=known), timeout=5):
                    if not answer.HasField("ring"):
                        continue
                    known = max(known, answer.ring.epoch)
                    self._note(node, answer.ring)
            except grpc.RpcError:
                self.stop.wait(0.05)

    def _note(self, node, ring):
        text = ring.SerializeToString(deterministic=True)
        with self.lock:
            first = self.rings.setdefault(ring.epoch, (node.name, text))
            if first[1] != text:
                self.splits.append((ring.epoch, first[0], node.name))

    def finish(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(20)


class OperatorsTest(harness.TestCase):

    def standby(self, cluster, name):
        node = self.node(name, location=f"zone=z1,rack=r1,host=h-{name}")
        node.seeds = [n.peer_address for n in cluster[:3]]
        node.start().wait_alive()
        return node

    def wait_found(self, cluster, name):
        def found():
            return all(any(n.name == name and n.state == admin_pb2.NODE_STATE_STANDBY
                           for n in node.admin.Status(admin_pb2.StatusRequest(),
                                                      timeout=10).nodes)
                       for node in cluster)
        harness.wait_until(found, 30, f"{name} found by all")

    def settled(self, cluster):
        """The ring epoch of all nodes, once nobody knows of an operation."""
        epochs = set()
        for node in cluster:
            if not node.running():
                return 0
            answer = node.admin.Operations(admin_pb2.OperationsRequest(), timeout=10,
                                           wait_for_ready=True)
            if answer.HasField("running"):
                return 0
            status = node.admin.Status(admin_pb2.StatusRequest(), timeout=10)
            epochs |= {answer.ring_epoch} | {n.ring_epoch for n in status.nodes
                                             if n.node_number != 0}
        return epochs.pop() if len(epochs) == 1 else 0

    def ask(self, node, request, gate, answers, i):
        gate.wait()
        try:
            answers[i] = node.admin.StartOperation(request, timeout=40)
        except grpc.RpcError as error:
            answers[i] = error

    def draw(self, chance, cluster, standby):
        """Two requests that cannot both be done at once."""
        weights = [admin_pb2.StartOperationRequest(
            kind=ring_pb2.TOPOLOGY_KIND_WEIGHT, nodes=[node.name],
            weight=chance.choice([0.5, 1, 2, 3])) for node in chance.sample(cluster, 2)]
        requests = weights[:1]
        if standby is not None:
            requests.append(admin_pb2.StartOperationRequest(
                kind=ring_pb2.TOPOLOGY_KIND_JOIN, nodes=[standby.name]))
        elif len(cluster) > 4 and chance.random() < 0.5:
            requests.append(admin_pb2.StartOperationRequest(
                kind=ring_pb2.TOPOLOGY_KIND_DECOMMISSION, nodes=[cluster[-1].name]))
        else:
            requests.append(weights[1])
        chance.shuffle(requests)
        return requests

    def test_of_two_at_once_one_runs_and_the_other_is_told(self):
        rounds = harness.size(5, 50)
        chance = harness.chance()
        first = self.cluster(4, racks=1)
        for i in range(100):
            harness.put(first[i % 4], b"key %d" % i, b"value %d" % i)
        cluster = list(first)
        watch = RingWatch(cluster)
        standby = None
        joined = 4
        both = 0
        for number in range(rounds):
            if standby is None and len(cluster) < 6 and chance.random() < 0.4:
                joined += 1
                standby = self.standby(cluster, f"n{joined}")
                self.wait_found(cluster, standby.name)
            before = harness.wait_until(lambda: self.settled(cluster), 60,
                                        "one ring, and no operation")
            asked = chance.sample(cluster, 2)
            requests = self.draw(chance, cluster, standby)
            gate = threading.Barrier(2)
            answers = [None, None]
            threads = [threading.Thread(target=self.ask, args=(
                asked[i], requests[i], gate, answers, i)) for i in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            started = [a for a in answers if isinstance(a, admin_pb2.StartOperationResponse)]
            refused = [a for a in answers if isinstance(a, grpc.RpcError)]
            text = f"round {number}: {requests} -> {answers}"
            self.assertGreaterEqual(len(started), 1, text)
            for error in refused:
                self.assertEqual(grpc.StatusCode.FAILED_PRECONDITION, error.code(), text)
                self.assertRegex(error.details(), r"a \S+ runs \(since epoch \d+\)", text)
            # Both run only one after the other.
            self.assertEqual(len(started), len({a.operation for a in started}), text)
            both += len(started) == 2
            for answer in started:
                self.assertGreater(answer.operation, before, text)
            leaver = {r.nodes[0] for r, a in zip(requests, answers)
                      if r.kind == ring_pb2.TOPOLOGY_KIND_DECOMMISSION and a in started}
            rest = [n for n in cluster if n.name not in leaver]
            if standby is not None and any(
                    r.kind == ring_pb2.TOPOLOGY_KIND_JOIN and a in started
                    for r, a in zip(requests, answers)):
                rest.append(standby)
                watch.add(standby)
                standby = None
            after = harness.wait_until(lambda: self.settled(rest), 60, lambda: text)
            self.assertEqual(before + 3 * len(started), after, text)
            for node in cluster:
                if node.name in leaver:
                    self.assertEqual(1, node.process.wait(30), text)
            cluster = rest
        watch.finish()
        self.assertEqual([], watch.splits)
        self.assertLess(both, rounds)
        for i in range(100):
            self.assertEqual([b"value %d" % i], harness.values(
                harness.get(chance.choice(cluster), b"key %d" % i)))
        print(f"{rounds} rounds, {both} of them one after the other, "
              f"{len(watch.rings)} epochs, {len(cluster)} nodes at the end")


if __name__ == "__main__":
    harness.main()
