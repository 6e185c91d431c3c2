"""Nodes that are cut off, or stand still, while another one joins.

RINGKV_TEST_SIZE=full lets a coordinator stand still for five minutes.
"""

import os
import time

import grpc

import network

if __name__ == "__main__":
    network.enter()

import harness  # noqa: E402
import placement  # noqa: E402
from harness import get, put, values  # noqa: E402
from ringkv.v1 import admin_pb2, kv_pb2, ring_pb2  # noqa: E402

KEYS = 1000
PHASES = {ring_pb2.TOPOLOGY_PHASE_START: "START", ring_pb2.TOPOLOGY_PHASE_SWITCH: "SWITCH"}
MEMBERS, HOSTS = 4, 10


def phase_of(ring):
    """START, SWITCH, or FINISH for a ring that is not being changed."""
    return PHASES[ring.operation.phase] if ring.HasField("operation") else "FINISH"


class TopologyPartitionTest(harness.TopologyTestCase):

    @classmethod
    def setUpClass(cls):
        cls.network = network.Network(HOSTS, ())

    def on_host(self, host, rack):
        node = self.node(f"n{host}", namespace=self.network.namespace(host),
                         addresses=self.network.addresses(host),
                         flags=["--insecure", "--drop-grace", "1s"],
                         location=f"zone=z1,rack=r{rack},host=h{host}")
        node.host, node.rack = host, rack
        return node

    def setUp(self):
        super().setUp()
        self.members = [self.on_host(i, (i - 1) % 3 + 1) for i in range(1, MEMBERS + 1)]
        harness.Cluster(self.folder, self.members).start().init()
        self.next_host = MEMBERS + 1
        self.bench("--load-only", "--verify", "none")
        # Whatever happens, no read may be stale and no write be lost; operations may
        # fail while nodes do not know yet who is away.
        self.load = harness.Bench(self.folder, *self.kvbench(
            "--skip-load", "--rate", "300", "--in-flight", str(KEYS // 2), "--deadline",
            "3s", "--seconds", "100000", "--allow-errors"))
        self.addCleanup(self.load.stop)

    def kvbench(self, *flags):
        return ["--endpoint", ",".join(n.client_address for n in self.members),
                "--quorum", "strict", "--history", os.path.join(self.folder, "history"),
                "--keys", str(KEYS), *flags]

    def bench(self, *flags):
        result = harness.run([harness.program("kvbench"), "-q", "-o", "json",
                              *self.kvbench(*flags)])
        self.assertEqual(0, result.returncode, result.stdout.decode())

    def new_node(self, rack):
        """A standby node that the cluster has found."""
        node = self.on_host(self.next_host, rack)
        self.next_host += 1
        node.seeds = [n.peer_address for n in self.members[:3]]
        node.start().wait_alive()
        for other in self.members:
            harness.wait_until(
                lambda: any(n.name == node.name
                            for n in other.admin.Status(admin_pb2.StatusRequest(), timeout=10,
                                                        wait_for_ready=True).nodes),
                30, f"{other.name} finds {node.name}")
        return node

    def ring(self, node):
        stream = node.kv.WatchRing(kv_pb2.WatchRingRequest(), timeout=10)
        ring = next(iter(stream)).ring
        stream.cancel()
        return ring

    def assert_all_well(self, count=None, partly=()):
        """All nodes agree, what is stored is where it should be, and nothing is lost;
        keys in `partly` may lack replicas. Returns how many copies there are of each."""
        self.wait_same_epoch(self.members)
        done = self.load.finish()
        for phase in ("run", "verify"):
            self.assertEqual([0, 0, 0], [done[phase][c] for c in ("stale", "missing", "wrong")],
                             done[phase]["errors"])
        self.assertEqual(0, done["verify"]["failed"], done["verify"]["errors"])
        print({c: done["run"][c] for c in ("operations", "failed", "unknown", "resolved")},
              flush=True)
        for node in self.members:
            harness.wait_hints_delivered(node)
        # Nothing fails any more, and all that was ever written is there.
        self.bench("--skip-load", "--operations", "500", "--verify", "all")
        return placement.wait_in_place(self.members, count, partly)[1]

    def proposer(self):
        """The member that takes the steps: that of the lowest number."""
        name = min((m.number, m.name) for m in self.ring(self.members[0]).members)[1]
        return next(node for node in self.members if node.name == name)

    def join_with_cut(self, wanted):
        """A node joins, and the proposer is cut off once it is in phase `wanted`, until
        the others have brought the join to its end; returns the phase in which it was."""
        proposer = self.proposer()
        others = [node for node in self.members if node is not proposer]
        # Whoever gives the newcomer its part must be there.
        joiner = self.new_node(next(n.rack for n in others if n.rack != proposer.rack))
        before = self.ring(proposer).epoch
        rings = proposer.kv.WatchRing(kv_pb2.WatchRingRequest(known_epoch=before), timeout=60)
        others[0].admin.StartOperation(admin_pb2.StartOperationRequest(
            kind=ring_pb2.TOPOLOGY_KIND_JOIN, nodes=[joiner.name]), timeout=30)
        for answer in rings:
            if answer.ring.epoch > before and phase_of(answer.ring) in (wanted, "FINISH"):
                break
        self.network.drop(proposer.host)
        self.addCleanup(self.network.restore, proposer.host)
        rings.cancel()
        seen = phase_of(self.ring(proposer))

        def ended():
            found = [self.ring(node) for node in [*others, joiner]]
            return all(ring.epoch >= before + 3 and phase_of(ring) == "FINISH"
                       for ring in found)
        harness.wait_until(ended, 60, lambda: f"the join ends without {proposer.name}: "
                           f"{[(r.epoch, phase_of(r)) for r in map(self.ring, others)]}")
        self.assertEqual(seen, phase_of(self.ring(proposer)), "it is cut off")
        self.network.restore(proposer.host)
        self.members.append(joiner)
        self.wait_same_epoch(self.members)
        return seen

    def test_a_join_goes_on_without_its_proposer_in_each_phase(self):
        hit = []
        while not {"START", "SWITCH", "FINISH"} <= set(hit):
            wanted = next(p for p in ("START", "SWITCH", "FINISH") if p not in hit)
            self.assertLessEqual(self.next_host, HOSTS, f"only in {hit}")
            hit.append(self.join_with_cut(wanted))
        print(f"the proposer was cut off in {hit}", flush=True)
        self.assert_all_well(KEYS)

    def test_a_coordinator_that_stood_still_during_a_join_loses_nothing(self):
        stands_still = harness.size(0, 300)
        frozen = self.proposer()
        others = [node for node in self.members if node is not frozen]
        joiner = self.new_node(next(n.rack for n in others if n.rack != frozen.rack))
        number = next(m.number for m in self.ring(frozen).members if m.name == frozen.name)
        timeout = stands_still + 100

        def send(begin, end):
            for i in range(begin, end):
                key = b"late %d" % i
                request = kv_pb2.PutRequest(
                    key=key, value=b"sent to the frozen " + key,
                    quorum=kv_pb2.QUORUM_STRICT if i % 2 else kv_pb2.QUORUM_SLOPPY)
                sent[key] = (request.value, frozen.kv.Put.future(request, timeout=timeout))
        sent = {}
        begin = time.monotonic()
        # Some are on their way when it stops, the others wait at its door.
        send(0, 200)
        harness.wait_until(lambda: any(put.done() for _, put in sent.values()), 10,
                           "one put is done")
        frozen.freeze()
        self.addCleanup(lambda: frozen.running() and frozen.thaw())
        early = {key for key, (_, put) in sent.items() if put.done()}
        send(200, 400)
        for node in others:
            harness.wait_states(node, admin_pb2.NODE_STATE_DOWN, [number])
        self.operate(others[0], "join", joiner.name)
        # Others write some of the same keys after the join.
        newer = {}
        for i in range(0, 400, 8):
            key = b"late %d" % i
            put(others[i % len(others)], key, b"newer " + key, quorum=kv_pb2.QUORUM_STRICT)
            newer[key] = b"newer " + key
        harness.wait_until(lambda: time.monotonic() >= begin + stands_still,
                           stands_still + 1, "the time to stand still")
        frozen.thaw()
        self.members.append(joiner)

        acknowledged, refused = {}, []
        for key, (value, future) in sent.items():
            try:
                future.result()
                acknowledged[key] = value
            except grpc.RpcError as error:
                refused.append((key, error.code(), error.details()))
        print(f"{len(early)} acknowledged before, {len(acknowledged) - len(early)} after, "
              f"{len(refused)} refused: {refused[:1]}", flush=True)
        # What the frozen node had still to hand out may be for one that has lost the key
        # meanwhile; that goes to W of the present replicas for sure.
        copies = self.assert_all_well(partly=sent.keys() - newer.keys())
        for key in {*acknowledged, *newer}:
            self.assertGreaterEqual(copies[key], 2, key)
            for node in (frozen, joiner):
                found = values(get(node, key, quorum=kv_pb2.QUORUM_STRICT))
                # A put that the frozen node had begun may come before the newer one, or
                # after; whichever was acknowledged and is not there was replaced by the other.
                possible = {acknowledged.get(key), newer.get(key)} - {None}
                self.assertTrue(possible & set(found), (key, found, possible))
                if key not in newer:
                    self.assertEqual([acknowledged[key]], found)


if __name__ == "__main__":
    harness.main()
