"""Nodes die while others join and leave; every operation ends by itself.

RINGKV_TEST_SIZE=full takes 10,000 keys and 30 crashes instead of 300 and 3.
RINGKV_TEST_SEED sets the seed.
"""

import json
import os
import random
import shutil
import threading

import grpc
import harness
from harness import get, locate, put, values
from ringkv.v1 import admin_pb2, ring_pb2

# Slow enough that crashes come in the middle, and former owners soon clean up.
FLAGS = ["--stream-rate", "1MiB", "--drop-grace", "1s"]


class TopologyCrashTest(harness.TestCase):

    def new_node(self, number):
        node = self.node(f"n{number}", location=f"zone=z1,rack=r1,host=h{number}",
                         flags=FLAGS)
        node.seeds = [n.peer_address for n in self.members[:3]]
        return node.start().wait_alive()

    def alive(self, nodes=None):
        return [n for n in nodes or self.members if n.running()]

    def status(self, node):
        return node.admin.Status(admin_pb2.StatusRequest(), timeout=10, wait_for_ready=True)

    def wait_all_alive(self, standby=None):
        """All members see each other, and the one that is to join."""
        def seen():
            for node in self.members:
                states = {n.name: n.state for n in self.status(node).nodes}
                if any(states.get(m.name) != admin_pb2.NODE_STATE_ALIVE
                       for m in self.members):
                    return False
                if standby and states.get(standby.name) != admin_pb2.NODE_STATE_STANDBY:
                    return False
            return True
        harness.wait_until(seen, 60, lambda: [self.status(n) for n in self.members])

    def running_operation(self):
        """(id, or 0 when none runs; the greatest ring epoch), over those who answer."""
        running, epoch = 0, 0
        for node in self.alive():
            try:
                answer = node.admin.Operations(admin_pb2.OperationsRequest(), timeout=5)
            except grpc.RpcError:
                return None
            epoch = max(epoch, answer.ring_epoch)
            if answer.HasField("running"):
                running = answer.running.id
        return running, epoch

    def ask(self, node, request):
        """Asks for an operation; whether it began, as far as the answer tells."""
        try:
            node.admin.StartOperation(request, timeout=40)
            return True
        except grpc.RpcError as error:
            return error

    def victim(self, role, about, sources):
        """Whom a crash hits, by its part in the operation."""
        alive = self.alive()
        if role == "mover" and about.running():
            return about
        if role == "source":
            named = [n for n in alive if n.name in sources]
            return self.chance.choice(named) if named else None
        if role == "proposer":
            # The lowest-numbered living member takes the steps.
            return alive[0] if alive else None
        return self.chance.choice(alive) if alive else None

    def crash(self, role, about, sources):
        victim = self.victim(role, about, sources)
        if victim is None or not victim.running():
            return False
        victim.kill()
        self.crashes.append((role, victim.name))
        self.pause.wait(self.chance.choice([0, self.chance.uniform(0, 1)]))
        self.restart(victim)
        return True

    def restart(self, node):
        node.start()
        # One that has left meanwhile ends again.
        harness.wait_until(lambda: not node.running() or node.http("/healthz")[0] == 200, 30,
                           lambda: node.tail())

    def operate(self, request, about, sources, crashes):
        """Runs one operation with up to `crashes` crashes, to its end."""
        before = self.running_operation()[1]
        asked = self.chance.choice(self.members)
        outcome = []
        thread = threading.Thread(
            target=lambda: outcome.append(self.ask(asked, request)))
        thread.start()
        done = 0
        for _ in range(crashes):
            self.pause.wait(self.chance.uniform(0, 1.2))
            role = self.chance.choice(["mover", "source", "proposer", "bystander"])
            done += self.crash(role, about, sources)
        thread.join()

        def ended():
            now = self.running_operation()
            if now is None or now[0] != 0:
                return False
            return now[1] >= before + 3 or outcome[0] is not True
        harness.wait_until(ended, 120, lambda: f"{request} {self.crashes[-3:]} "
                           f"{outcome} {self.running_operation()}")
        return done, self.running_operation()[1] >= before + 3

    def test_joins_and_decommissions_survive_crashes(self):
        self.chance = harness.chance()
        self.pause = threading.Event()
        self.crashes = []
        count, wanted = harness.size(300, 10_000), harness.size(3, 30)
        nodes = [self.node(f"n{i + 1}", location=f"zone=z1,rack=r1,host=h{i + 1}",
                           flags=FLAGS) for i in range(4)]
        self.members = nodes
        harness.Cluster(self.folder, nodes).start().init()
        path = os.path.join(self.folder, "records.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            for i in range(count):
                file.write(json.dumps({"key": f"key {i}", "value": f"{i} " * 100}) + "\n")
        harness.kvctl("load", path, endpoint=nodes[0].client_address, seconds=120)
        loaded = {b"key %d" % i: b"%d " % i * 100 for i in range(count)}
        harness.wait_hints_delivered(nodes[0])

        load = harness.Writers(self.members, threads=2, timeout=5, pause=0.05)
        load.nodes = self.members
        number, crashed, operations = 4, 0, 0
        standby = None
        try:
            while crashed < wanted:
                joins = len(self.members) <= 4 or (
                    len(self.members) < 6 and self.chance.random() < 0.5)
                if joins and standby is None:
                    number += 1
                    standby = self.new_node(number)
                about = standby if joins else self.chance.choice(self.members)
                self.wait_all_alive(standby)
                request = admin_pb2.StartOperationRequest(
                    kind=ring_pb2.TOPOLOGY_KIND_JOIN if joins
                    else ring_pb2.TOPOLOGY_KIND_DECOMMISSION, nodes=[about.name])
                dry = admin_pb2.StartOperationRequest()
                dry.CopyFrom(request)
                dry.dry_run = True
                plan = self.members[0].admin.StartOperation(dry, timeout=20).plan
                sources = {t.to.name if about.name == getattr(t, "from").name
                           else getattr(t, "from").name for t in plan.transfers}
                if not joins:
                    load.nodes = [n for n in self.members if n is not about]
                done, happened = self.operate(request, about, sources,
                                              min(self.chance.randint(1, 2),
                                                  wanted - crashed))
                crashed += done
                operations += happened
                if happened and joins:
                    self.members = [*self.members, about]
                    standby = None
                elif happened:
                    self.members = [n for n in self.members if n is not about]
                    self.assertEqual(1, about.process.wait(30))
                    self.assertIn("has left", about.log_text())
                    shutil.rmtree(about.data)
                for node in self.members:
                    if not node.running():
                        self.fail(f"{node.name} is not running\n{node.tail()}")
                load.nodes = self.members
        finally:
            acknowledged = load.finish()
        print(f"{operations} operations, {len(self.crashes)} crashes {self.crashes}, "
              f"{len(acknowledged)} writes, {len(load.failed)} failed")
        self.check_every_key(loaded, acknowledged)

    def check_every_key(self, loaded, acknowledged):
        self.wait_all_alive()
        for node in self.members:
            harness.wait_hints_delivered(node)
        # A killed coordinator hands nothing on: what it did not reach is repaired by a read.
        written = {**loaded, **acknowledged}
        found = harness.for_each(written, lambda key: values(
            get(random.choice(self.members), key, r=3)))
        lost = [key for key, values_found in zip(written, found)
                if values_found != [written[key]]]
        self.assertEqual([], lost)
        numbers = {n.node_number: n.name for n in self.status(self.members[0]).nodes}
        homes = {}

        def unequal():
            """Keys whose replicas differ, of those that were not seen equal."""
            rest = [key for key in written if key not in homes]
            located = harness.for_each(rest, lambda key: locate(self.members[0], key))
            for key, answer in zip(rest, located):
                replicas = [copy for copy in answer.copies if copy.replica]
                if all(copy.answered and copy.found for copy in replicas) and len(
                        {copy.digest for copy in replicas}) == 1:
                    homes[key] = {numbers[copy.node_number] for copy in replicas}
            return [key for key in rest if key not in homes]
        harness.wait_until(lambda: not unequal(), 60, lambda: unequal()[:5])
        self.assertEqual({3}, {len(replicas) for replicas in homes.values()})

        def misplaced():
            """Keys that are on other nodes than their replicas."""
            wrong = []
            for node in self.members:
                stored = harness.stored_keys(node)
                if stored is None:
                    return ["not read"]
                for key, replicas in homes.items():
                    if (key in stored) != (node.name in replicas):
                        wrong.append((node.name, key, replicas))
                # Of puts that failed, too, nothing is where it should not be.
                for key in stored.keys() - homes.keys():
                    replicas = {numbers[copy.node_number]
                                for copy in locate(self.members[0], key).copies
                                if copy.replica}
                    if node.name not in replicas:
                        wrong.append((node.name, key, replicas))
            return wrong
        harness.wait_until(lambda: not misplaced(), 60, lambda: misplaced()[:5])


if __name__ == "__main__":
    harness.main()
