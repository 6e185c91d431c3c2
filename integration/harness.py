"""Starts, watches and stops real RingKV processes for the integration tests.

Nodes listen on free loopback ports, or in network namespaces of their own, and
keep their data and logs in a temporary folder that is removed when the test
passed and named when it did not. Nothing here waits for a time to pass: every
wait is for a condition, with a deadline that fails the test.
"""

import concurrent.futures
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("RINGKV_BUILD", os.path.join(ROOT, "build"))
sys.path.insert(0, os.path.join(BUILD, "integration", "python"))

# Its handlers around fork wait for threads that never end; we only ever exec.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
import grpc  # noqa: E402
from ringkv.v1 import admin_pb2, admin_pb2_grpc, kv_pb2, kv_pb2_grpc  # noqa: E402

_pause = threading.Event()  # never set: waits between two looks at a condition
# In front of a command: it ends when the test does, however that ends.
WITH_US = ["setpriv", "--pdeathsig", "KILL", "--"]


def size(short, full):
    """How much of something a test does: `short` in every run, `full` when asked."""
    return full if os.environ.get("RINGKV_TEST_SIZE") == "full" else short


def chance():
    """Randomness whose seed is printed, and can be given."""
    seed = int(os.environ.get("RINGKV_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
    print(f"RINGKV_TEST_SEED={seed}", flush=True)
    return random.Random(seed)


def wait_until(condition, seconds, what):
    """Returns the first true result of condition(); fails after `seconds`.

    `what` is a text, or a function that makes one when the wait failed.
    """
    deadline = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            text = what() if callable(what) else what
            raise AssertionError(f"waited {seconds} s in vain for: {text}")
        _pause.wait(0.02)


def port_is_free(port):
    with socket.socket() as probe:
        # As a server would: what a closed connection leaves behind takes no port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            return True
        except OSError:
            return False


# Below the range that the kernel hands out for outgoing connections, so that no
# client takes the port of a node that restarts.
_ports = iter([])


def free_port():
    global _ports
    while True:
        for port in _ports:
            if port_is_free(port):
                return port
        begin = random.SystemRandom().randrange(10000, 30000)
        _ports = iter(range(begin, begin + 2000))


def program(name):
    path = os.path.join(BUILD, name)
    if not os.access(path, os.X_OK):
        raise AssertionError(f"{path} is missing; build first")
    return path


def run(arguments, seconds=60, **options):
    """Runs a command to its end; returns the CompletedProcess with its text."""
    options.setdefault("stdin", subprocess.DEVNULL)
    if "input" in options:
        options.pop("stdin")
    return subprocess.run([*WITH_US, *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=seconds, **options)


def kvctl(*arguments, endpoint=None, seconds=60, check=True, **options):
    command = [program("kvctl"), *arguments]
    if endpoint:
        command += ["--endpoint", endpoint]
    result = run(command, seconds=seconds, **options)
    if check and result.returncode != 0:
        raise AssertionError(
            f"kvctl {' '.join(map(str, arguments))}: exit code {result.returncode}\n"
            f"{result.stdout.decode(errors='replace')}"
            f"{result.stderr.decode(errors='replace')}")
    return result


def kvctl_json(*arguments, **options):
    return json.loads(kvctl(*arguments, "-o", "json", **options).stdout)


class Node:
    """One kvnode process and its data folder, over all its restarts."""

    def __init__(self, folder, name, location=None, flags=(), ports=None,
                 addresses=None, namespace=None):
        self.name = name
        self.folder = folder
        self.data = os.path.join(folder, name)
        self.log = os.path.join(folder, name + ".log")
        self.namespace = namespace
        self.location = location
        if addresses is None:
            ports = ports or (free_port(), free_port(), free_port())
            addresses = [f"127.0.0.1:{port}" for port in ports]
        self.client_address, self.peer_address, self.http_address = addresses
        self.flags = list(flags)
        self.seeds = []
        self.process = None
        self.channel = None

    def command(self):
        command = [program("kvnode"), "--data-dir", self.data, "--name", self.name,
                   "--listen", self.client_address, "--peer-listen", self.peer_address,
                   "--http-listen", self.http_address]
        if self.seeds:
            command += ["--seeds", ",".join(self.seeds)]
        if self.location:
            command += ["--location", self.location]
        command += self.flags
        if self.namespace:
            command = ["ip", "netns", "exec", self.namespace, *command]
        return command

    def start(self):
        assert not self.running(), f"{self.name} runs already"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*WITH_US, *self.command()], stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT)
        return self

    def running(self):
        return self.process is not None and self.process.poll() is None

    def http(self, path, timeout=2.0):
        """(status, body) of a GET, or (0, reason) when there is no answer."""
        connection = http.client.HTTPConnection(self.http_address, timeout=timeout)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except OSError as error:
            return 0, str(error)
        finally:
            connection.close()

    def answers_http(self):
        if not self.running():
            raise AssertionError(f"{self.name} has stopped with exit code "
                                 f"{self.process.returncode}\n{self.tail()}")
        return self.http("/healthz")[0] == 200

    def ready(self):
        if not self.running():
            raise AssertionError(f"{self.name} has stopped with exit code "
                                 f"{self.process.returncode}\n{self.tail()}")
        return self.http("/readyz")[0] == 200

    def wait_alive(self, seconds=20):
        wait_until(self.answers_http, seconds, lambda: f"{self.name} alive\n{self.tail()}")
        return self

    def wait_ready(self, seconds=30):
        wait_until(self.ready, seconds, lambda: f"{self.name} ready: "
                   f"{self.http('/readyz')}\n{self.tail()}")
        return self

    def metric(self, name):
        """Sum of a metric over its labels; 0 if it is not there."""
        status, body = self.http("/metrics")
        assert status == 200, (status, body)
        total = 0.0
        for line in body.splitlines():
            if line.startswith((name + " ", name + "{")):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        """The process is gone at once, as in a crash."""
        self.channel = None  # its connection is of the run that ends
        if self.running():
            self.process.kill()
        if self.process:
            self.process.wait(10)

    def freeze(self):
        self.signal(signal.SIGSTOP)

    def thaw(self):
        self.signal(signal.SIGCONT)

    def stop(self, seconds=30):
        """Drains; returns the exit code."""
        self.channel = None  # its connection is of the run that ends
        if self.running():
            self.process.terminate()
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.name} still drains after {seconds} s\n{self.tail()}") from None

    def tail(self, lines=40):
        try:
            with open(self.log, errors="replace") as file:
                return f"--- end of the log of {self.name}\n" + "".join(
                    file.readlines()[-lines:])
        except FileNotFoundError:
            return "(no log)"

    def log_text(self):
        with open(self.log, errors="replace") as file:
            return file.read()

    def connect(self):
        channel = self.channel
        if channel is None:
            channel = grpc.insecure_channel(self.client_address, options=[
                ("grpc.initial_reconnect_backoff_ms", 50),
                ("grpc.max_reconnect_backoff_ms", 500),
                ("grpc.use_local_subchannel_pool", 1)])
            self.channel = channel
        return channel

    @property
    def kv(self):
        return kv_pb2_grpc.KeyValueStub(self.connect())

    @property
    def admin(self):
        return admin_pb2_grpc.AdminStub(self.connect())

    def close(self):
        if self.channel is not None:
            self.channel.close()
        if self.running():
            self.process.send_signal(signal.SIGCONT)
        self.kill()


class Cluster:
    """Several nodes that were formed into one cluster."""

    def __init__(self, folder, nodes):
        self.folder = folder
        self.nodes = nodes
        seeds = [node.peer_address for node in nodes[:3]]
        for node in nodes:
            node.seeds = seeds

    def start(self):
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.wait_alive()
        return self

    def init(self, *flags):
        # Waits by itself for the nodes to find each other.
        kvctl("init", "--nodes", str(len(self.nodes)), "--wait", "30s", *flags,
              endpoint=self.nodes[0].client_address)
        for node in self.nodes:
            node.wait_ready()
        return self

    @property
    def endpoints(self):
        return ",".join(node.client_address for node in self.nodes)

    def __getitem__(self, index):
        return self.nodes[index]

    def __iter__(self):
        return iter(self.nodes)

    def __len__(self):
        return len(self.nodes)


class TestCase(unittest.TestCase):
    """A test with a folder of its own, whose nodes end with it."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ringkv-test-")
        self.nodes = []
        self.addCleanup(self._clean_up)

    def _clean_up(self):
        for node in self.nodes:
            node.close()
        errors = getattr(self._outcome, "errors", None)
        result = getattr(self._outcome, "result", None)
        failed = any(error for _, error in errors or []) or any(
            test is self for test, _ in (result.failures + result.errors if result else []))
        if failed:
            for node in self.nodes:
                print(node.tail(), file=sys.stderr)
            print(f"data and logs are in {self.folder}", file=sys.stderr)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def node(self, name="n1", **options):
        node = Node(self.folder, name, **options)
        self.nodes.append(node)
        return node

    def single_node(self, **options):
        """A cluster of one, ready."""
        node = self.node(flags=["--init", *options.pop("flags", [])], **options)
        return node.start().wait_ready()

    def cluster(self, count=3, racks=3, init=(), flags=()):
        nodes = [
            self.node(f"n{i + 1}", flags=flags,
                      location=f"zone=z1,rack=r{i % racks + 1},host=h{i + 1}")
            for i in range(count)]
        return Cluster(self.folder, nodes).start().init(*init)

    def refused(self, code, call, *arguments, **options):
        """Expects a gRPC error with `code`; returns its message."""
        options.setdefault("timeout", 10)
        try:
            answer = call(*arguments, **options)
        except grpc.RpcError as error:
            self.assertEqual(code, error.code(), error.details())
            return error.details()
        return self.fail(f"expected {code}, got {answer}")


class TopologyTestCase(TestCase):
    """A test that changes who is in the cluster."""

    def standby(self, cluster, name, rack, **options):
        """One more node, which the cluster has found."""
        node = self.node(name, location=f"zone=z1,rack={rack},host=h-{name}", **options)
        node.seeds = [cluster[0].peer_address]
        node.start().wait_alive()

        def is_found():
            for other in cluster:
                if not other.running():
                    continue
                status = other.admin.Status(admin_pb2.StatusRequest(), timeout=10,
                                            wait_for_ready=True)
                if not any(n.name == name and n.state == admin_pb2.NODE_STATE_STANDBY
                           for n in status.nodes):
                    return False
            return True
        wait_until(is_found, 30, f"{name} found")
        return node

    def operate(self, node, *arguments, seconds=120):
        """Runs a kvctl command that changes the cluster, to its end."""
        result = kvctl_json(*arguments, "--yes", "--no-progress",
                            endpoint=node.client_address, seconds=seconds)
        self.assertEqual("done", result["state"])
        return result

    def wait_knows_the_dead(self, node, *operation):
        wait_until(
            lambda: not any("would be refused" in warning for warning in kvctl_json(
                "plan", *operation, endpoint=node.client_address)["warnings"]),
            30, f"{node.name} to take {operation} for possible")

    def members(self, node):
        status = node.admin.Status(admin_pb2.StatusRequest(), timeout=10,
                                   wait_for_ready=True)
        return sorted(n.name for n in status.nodes if n.node_number != 0)

    def wait_same_epoch(self, nodes):
        def same():
            statuses = [node.admin.Status(admin_pb2.StatusRequest(), timeout=10,
                                          wait_for_ready=True) for node in nodes]
            epochs = {n.ring_epoch for s in statuses for n in s.nodes if n.node_number != 0}
            return len(epochs) == 1 and all(
                n.state == admin_pb2.NODE_STATE_ALIVE
                for s in statuses for n in s.nodes if n.node_number != 0)
        wait_until(same, 30, "all nodes alive and at one epoch")


def put(node, key, value, timeout=10, **fields):
    return node.kv.Put(kv_pb2.PutRequest(key=key, value=value, **fields), timeout=timeout)


def get(node, key, timeout=10, **fields):
    return node.kv.Get(kv_pb2.GetRequest(key=key, **fields), timeout=timeout,
                       wait_for_ready=True)


def all_hints(node):
    """Number of hints that wait anywhere, or None while a member is unheard."""
    answer = node.admin.Hints(admin_pb2.HintsRequest(), timeout=10, wait_for_ready=True)
    if answer.unheard:
        return None
    return sum(backlog.hints for backlog in answer.backlogs)


def hints_for(node, target):
    """Number of hints that wait for the member `target`, as far as `node` hears."""
    answer = node.admin.Hints(admin_pb2.HintsRequest(), timeout=10, wait_for_ready=True)
    return sum(b.hints for b in answer.backlogs if b.target == target)


def wait_hints_delivered(node, seconds=60):
    wait_until(lambda: all_hints(node) == 0, seconds,
               lambda: f"hints delivered: {node.admin.Hints(admin_pb2.HintsRequest())}")


def locate(node, key, keyspace=""):
    return node.admin.Locate(admin_pb2.LocateRequest(key=key, keyspace=keyspace),
                             timeout=10, wait_for_ready=True)


def wait_states(node, state, numbers, seconds=30):
    """Waits until `node` sees the members `numbers` in `state`."""
    def seen():
        status = node.admin.Status(admin_pb2.StatusRequest(), timeout=10,
                                   wait_for_ready=True)
        return {n.node_number for n in status.nodes if n.state == state} >= set(numbers)
    wait_until(seen, seconds, lambda: f"{node.name} sees {numbers} in state {state}: "
               f"{node.admin.Status(admin_pb2.StatusRequest())}")


class Writers:
    """Threads that put new keys through any of the nodes and keep what was acknowledged.

    Each waits `pause` seconds after each put.
    """

    def __init__(self, nodes, threads=4, timeout=3, pause=0):
        self.nodes = list(nodes)
        self.timeout = timeout
        self.pause = pause
        self.acknowledged = {}
        self.failed = {}  # or unknown: nothing was promised
        self.stop = threading.Event()
        self.threads = [threading.Thread(target=self._write, args=(i,), daemon=True)
                        for i in range(threads)]
        for thread in self.threads:
            thread.start()

    def _write(self, number):
        chance = random.Random(number)
        i = 0
        while not self.stop.is_set():
            i += 1
            key = b"writer %d %d" % (number, i)
            try:
                put(chance.choice(self.nodes), key, key * 10, timeout=self.timeout)
                self.acknowledged[key] = key * 10
            except grpc.RpcError as error:
                self.failed[key] = error
            if self.pause:
                self.stop.wait(self.pause)

    def wait_for(self, more):
        """Until `more` further writes were acknowledged."""
        target = len(self.acknowledged) + more
        wait_until(lambda: len(self.acknowledged) >= target, 60,
                   lambda: f"{more} more writes ({len(self.acknowledged)} so far, "
                   f"{len(self.failed)} failed: {list(self.failed.values())[-1:]})")

    def finish(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(30)
        return self.acknowledged


def replica_differences(node, keys):
    """Keys whose replicas are not all there and equal; reads and repairs nothing."""
    different = []
    for key in keys:
        replicas = [copy for copy in locate(node, key).copies if copy.replica]
        if not all(copy.answered for copy in replicas) or len(
                {(copy.found, copy.digest) for copy in replicas}) != 1:
            different.append((key, replicas))
    return different


def stored_keys(node):
    """{key: token} of keyspace 1 on the disk of a node; None if it was busy with it."""
    result = run([program("stored_keys"), node.data], seconds=120)
    if result.returncode != 0:
        return None
    keys = {}
    for line in result.stdout.splitlines():
        keyspace, token, key = line.split()
        if keyspace == b"1":
            keys[bytes.fromhex(key.decode())] = int(token, 16)
    return keys


class Bench:
    """kvbench under way, from its start until finish(); prints JSON."""

    def __init__(self, folder, *flags):
        self.log = os.path.join(folder, "kvbench.log")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [*WITH_US, program("kvbench"), "-o", "json", *flags],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=log)

    def seconds(self):
        """For how many it has said what it did."""
        with open(self.log, errors="replace") as file:
            lines = [line for line in file if " ops/s " in line]
        if self.process.poll() is not None:
            raise AssertionError(f"kvbench has stopped: {lines[-3:]}")
        return len(lines)

    def wait_for(self, more):
        target = self.seconds() + more
        wait_until(lambda: self.seconds() >= target, 30 + 3 * more,
                           f"{more} more seconds of load")

    def finish(self):
        """Ends its run; returns what it says of it and of what it has read again."""
        self.process.send_signal(signal.SIGTERM)
        output, _ = self.process.communicate(timeout=1200)
        return json.loads(output)

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def for_each(items, action, threads=8):
    """action(item) of each, in order, by several threads."""
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return list(pool.map(action, items))


def wait_replicas_equal(node, keys, seconds=60):
    """Waits until all replicas of the keys are equal, without reading any. Counts of
    hints are reports, up to a second old: they can say 0 before the first is stored."""
    wait_until(lambda: not replica_differences(node, keys), seconds,
               lambda: f"equal replicas, not {replica_differences(node, keys)}")


def values(answer):
    return sorted(sibling.value for sibling in answer.siblings)


def main():
    unittest.main(verbosity=2)
