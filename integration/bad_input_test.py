"""Bad input over real processes: one clear error each, nothing lost, nothing down."""

import os
import shutil
import stat
import unittest

import grpc

import harness
from harness import get, kvctl, put, values
from ringkv.v1 import admin_pb2, kv_pb2

INVALID = grpc.StatusCode.INVALID_ARGUMENT
KEY_MAX = 4096
VALUE_MAX = 1 << 20


class BadRequestTest(harness.TestCase):
    """Requests that no node may take, to a cluster that must go on."""

    def setUp(self):
        super().setUp()
        self.nodes3 = self.cluster(3)
        put(self.nodes3[0], b"witness", b"here")
        self.addCleanup(self.check_witness)

    def check_witness(self):
        for node in self.nodes3:
            self.assertTrue(node.running(), node.tail())
            self.assertEqual([b"here"], values(get(node, b"witness")))

    def put_request(self, **fields):
        return kv_pb2.PutRequest(**{"key": b"k", "value": b"v", **fields})

    def test_sizes_at_the_limits_and_beyond(self):
        kv = self.nodes3[0].kv
        for key in (b"k", b"k" * (KEY_MAX - 1), b"k" * KEY_MAX, b"\x00", b"\xff" * KEY_MAX):
            put(self.nodes3[0], key, b"v")
            self.assertEqual([b"v"], values(get(self.nodes3[1], key)))
        for key, size in ((b"", "0"), (b"k" * (KEY_MAX + 1), str(KEY_MAX + 1))):
            for call, request in ((kv.Put, kv_pb2.PutRequest(key=key, value=b"v")),
                                  (kv.Get, kv_pb2.GetRequest(key=key)),
                                  (kv.Delete, kv_pb2.DeleteRequest(key=key))):
                message = self.refused(INVALID, call, request)
                self.assertIn(str(KEY_MAX), message.replace(",", ""))
                self.assertIn(size, message)
        for length in (0, 1, VALUE_MAX - 1, VALUE_MAX):
            value = os.urandom(length)
            put(self.nodes3[0], b"big", value)
            self.assertEqual([value], values(get(self.nodes3[2], b"big", r=3)))
        message = self.refused(INVALID, kv.Put, self.put_request(value=b"v" * (VALUE_MAX + 1)))
        self.assertIn(str(VALUE_MAX + 1), message)
        self.assertIn(str(VALUE_MAX), message)
        self.assertEqual([], values(get(self.nodes3[0], b"k" * 3)))

    def test_message_above_the_limit(self):
        call = self.nodes3[0].kv.Put
        with self.assertRaises(grpc.RpcError) as caught:
            call(self.put_request(value=b"v" * (5 << 20)), timeout=10)
        self.assertIn(caught.exception.code(),
                      (INVALID, grpc.StatusCode.RESOURCE_EXHAUSTED))

    def test_value_at_the_limit_reaches_a_replica_that_was_away(self):
        self.nodes3[2].kill()
        value = os.urandom(VALUE_MAX)
        put(self.nodes3[0], b"away", value)
        self.nodes3[2].start().wait_ready()
        harness.wait_replicas_equal(self.nodes3[0], [b"away"])
        harness.wait_hints_delivered(self.nodes3[0])

    def test_unknown_keyspace(self):
        kv = self.nodes3[0].kv
        for call, request in (
                (kv.Put, self.put_request(keyspace="nowhere")),
                (kv.Get, kv_pb2.GetRequest(key=b"k", keyspace="nowhere")),
                (kv.Delete, kv_pb2.DeleteRequest(key=b"k", keyspace="nowhere"))):
            message = self.refused(grpc.StatusCode.NOT_FOUND, call, request)
            self.assertIn("nowhere", message)
        with self.assertRaises(grpc.RpcError) as caught:
            list(kv.Scan(kv_pb2.ScanRequest(keyspace="nowhere"), timeout=10))
        self.assertEqual(grpc.StatusCode.NOT_FOUND, caught.exception.code())

    def test_quorums_that_cannot_be(self):
        kv = self.nodes3[0].kv
        for number in (4, 1000, 2 ** 32 - 1):
            message = self.refused(INVALID, kv.Get, kv_pb2.GetRequest(key=b"k", r=number))
            self.assertIn(str(number), message)
            self.assertIn("3", message)
            self.refused(INVALID, kv.Put, self.put_request(w=number))
            self.refused(INVALID, kv.Delete, kv_pb2.DeleteRequest(key=b"k", w=number))
        # Below what the keyspace promises, or too few to overlap.
        self.refused(INVALID, kv.Get, kv_pb2.GetRequest(
            key=b"k", r=1, quorum=kv_pb2.QUORUM_STRICT))
        self.refused(INVALID, kv.Put, self.put_request(w=1, quorum=kv_pb2.QUORUM_STRICT))
        self.refused(INVALID, kv.Get, kv_pb2.GetRequest(key=b"k", quorum=77))
        for number in (1, 2, 3):
            put(self.nodes3[0], b"k", b"v", w=number)
            self.assertEqual([b"v"], values(get(self.nodes3[1], b"k", r=number)))

    def test_contradictions_and_nonsense(self):
        kv = self.nodes3[0].kv
        context = put(self.nodes3[0], b"k", b"v").context
        self.refused(INVALID, kv.Put, self.put_request(context=context, blind=True))
        for seconds, nanos in ((0, 0), (-1, 0), (0, 999), (0, -5), (2 ** 62, 0)):
            self.refused(INVALID, kv.Put,
                         self.put_request(ttl={"seconds": seconds, "nanos": nanos}))
        self.refused(INVALID, kv.Put, self.put_request(request_id={"id": b"x" * 65}))
        self.refused(INVALID, kv.Batch, kv_pb2.BatchRequest())
        self.refused(INVALID, kv.Batch, kv_pb2.BatchRequest(
            operations=[kv_pb2.Operation(get=kv_pb2.GetRequest(key=b"k"))] * 10001))
        with self.assertRaises(grpc.RpcError) as caught:
            list(kv.Scan(kv_pb2.ScanRequest(cursor=b"no cursor"), timeout=10))
        self.assertEqual(INVALID, caught.exception.code())
        results = kv.Batch(kv_pb2.BatchRequest(operations=[kv_pb2.Operation()]), timeout=10)
        self.assertEqual(INVALID.value[0], results.results[0].code)

    def test_damaged_contexts_are_refused_and_change_nothing(self):
        node = self.nodes3[0]
        context = put(node, b"k", b"v").context
        other = put(node, b"another key", b"v").context
        damaged = [b"", b"\x00", context + b"\x00", context * 2, other]
        damaged += [context[:length] for length in range(1, len(context))]
        for bit in range(len(context) * 8):
            flipped = bytearray(context)
            flipped[bit // 8] ^= 1 << (bit % 8)
            damaged.append(bytes(flipped))
        for bad in damaged:
            message = self.refused(INVALID, node.kv.Put,
                                   self.put_request(value=b"wrong", context=bad))
            self.assertIn("context", message)
            self.refused(INVALID, node.kv.Delete,
                         kv_pb2.DeleteRequest(key=b"k", context=bad))
        self.assertEqual([b"v"], values(get(node, b"k", r=3)))
        put(node, b"k", b"right", context=context)
        self.assertEqual([b"right"], values(get(node, b"k", r=3)))

    def test_context_of_another_keyspace_is_refused(self):
        node = self.nodes3[0]
        context = put(node, b"k", b"v").context
        kvctl("keyspace", "create", "other", endpoint=node.client_address)
        harness.wait_until(lambda: self.knows_keyspace("other"), 10, "keyspace everywhere")
        self.refused(INVALID, node.kv.Put, self.put_request(keyspace="other", context=context))

    def knows_keyspace(self, name):
        for node in self.nodes3:
            ring = next(node.kv.WatchRing(kv_pb2.WatchRingRequest(), timeout=10)).ring
            if name not in [k.name for k in ring.keyspaces]:
                return False
        return True

    def test_answer_above_the_limit_names_the_size_to_ask_with(self):
        node = self.nodes3[0]
        for i in range(4):
            put(node, b"fat", bytes([i]) * 700_000, blind=True)
        self.assertEqual(4, len(get(node, b"fat").siblings))
        message = self.refused(grpc.StatusCode.RESOURCE_EXHAUSTED, node.kv.Get,
                               kv_pb2.GetRequest(key=b"fat", max_answer_bytes=1_000_000))
        self.assertRegex(message, r"2[.,]?8\d\d")
        with self.assertRaises(grpc.RpcError) as caught:
            put(node, b"fat", b"x" * 700_000, blind=True)
        self.assertEqual(grpc.StatusCode.RESOURCE_EXHAUSTED, caught.exception.code())
        put(node, b"fat", b"thin", context=get(node, b"fat").context)
        self.assertEqual([b"thin"], values(get(node, b"fat")))

    def test_siblings_above_the_limit_are_refused_until_resolved(self):
        node = self.nodes3[0]
        for i in range(100):
            put(node, b"many", b"%d" % i, blind=True)
        with self.assertRaises(grpc.RpcError) as caught:
            put(node, b"many", b"one more", blind=True)
        self.assertEqual(INVALID, caught.exception.code())
        self.assertIn("100", caught.exception.details())
        put(node, b"many", b"one", context=get(node, b"many").context)
        self.assertEqual([b"one"], values(get(node, b"many")))

    def test_keyspaces_that_cannot_be(self):
        admin = self.nodes3[0].admin
        for fields in ({"name": ""}, {"name": "a b"}, {"name": "x" * 65},
                       {"name": "x", "n": 0, "r": 1, "w": 1},
                       {"name": "x", "n": 3, "r": 4, "w": 2},
                       {"name": "x", "n": 3, "r": 2, "w": 4},
                       {"name": "x", "n": 3, "r": 1, "w": 1, "quorum": 1},
                       {"name": "x", "n": 3, "r": 2, "w": 2, "mode": 9}):
            with self.subTest(fields=fields):
                with self.assertRaises(grpc.RpcError) as caught:
                    admin.CreateKeyspace(admin_pb2.CreateKeyspaceRequest(
                        keyspace={"n": 3, "r": 2, "w": 2, **fields}), timeout=10)
                self.assertEqual(INVALID, caught.exception.code(), fields)
        self.refused(grpc.StatusCode.NOT_FOUND, admin.DropKeyspace,
                     admin_pb2.DropKeyspaceRequest(name="nowhere"))

    def test_kvctl_names_what_is_wrong(self):
        endpoint = self.nodes3[0].client_address
        for arguments, code in (
                (["no-such-command"], 2), (["get"], 2), (["get", "k", "--r"], 2),
                (["get", "k", "--no-such-flag"], 2), (["put", "k"], 2), ([], 2),
                (["get", "k", "-o", "xml"], 2), (["get", "k", "--r", "many"], 2),
                (["get", "k", "--endpoint", "not an address"], 2),
                (["get", "k", "--r", "1", "--r", "2"], 2),
                (["get", "k", "--r", "7"], 1), (["get", "k", "--keyspace", "nowhere"], 1),
                (["put", "k" * (KEY_MAX + 1), "v"], 1), (["get", "never written"], 3)):
            with self.subTest(arguments=arguments):
                flags = {} if "--endpoint" in arguments else {"endpoint": endpoint}
                result = kvctl(*arguments, check=False, **flags)
                text = (result.stdout + result.stderr).decode()
                self.assertEqual(code, result.returncode, text)
                if code != 3:
                    self.assertTrue(result.stderr.strip(), "says what is wrong")

    def test_kvctl_says_when_nobody_answers(self):
        result = kvctl("get", "k", endpoint=f"127.0.0.1:{harness.free_port()}", check=False)
        self.assertEqual(1, result.returncode)
        self.assertIn(b"127.0.0.1", result.stderr)
        result = kvctl("status", endpoint=f"127.0.0.1:{harness.free_port()}", check=False)
        self.assertIn(result.returncode, (1, 5))


class BadStartTest(harness.TestCase):
    """Nodes that must not start, beside one whose data must stay."""

    def refused_start(self, node, *words):
        """Expects exit code 1, or 2 for what could be seen without starting."""
        result = harness.run(node.command(), seconds=30)
        text = (result.stdout + result.stderr).decode()
        self.assertIn(result.returncode, (1, 2), text)
        for word in words:
            self.assertIn(word, text)
        return text

    def test_second_process_on_the_same_data_directory(self):
        node = self.single_node()
        put(node, b"k", b"v")
        second = self.node("second", flags=["--init"])
        second.data = node.data
        self.refused_start(second, node.data)
        self.assertEqual([b"v"], values(get(node, b"k")))

    def test_foreign_data_directory(self):
        folder = os.path.join(self.folder, "n1")
        os.mkdir(folder)
        with open(os.path.join(folder, "thesis.txt"), "w", encoding="utf-8") as file:
            file.write("years of work")
        node = self.node("n1", flags=["--init"])
        self.refused_start(node, folder)
        self.assertEqual(["thesis.txt"], os.listdir(folder))

    def test_data_directory_that_is_a_file(self):
        node = self.node("n1", flags=["--init"])
        with open(node.data, "w", encoding="utf-8") as file:
            file.write("text")
        self.refused_start(node, node.data)

    def test_data_directory_that_cannot_be_written(self):
        node = self.node("n1", flags=["--init"])
        # Root may write anywhere but where no folder can be.
        node.data = "/proc/ringkv"
        self.refused_start(node, node.data)
        if os.geteuid() != 0:
            node.data = os.path.join(self.folder, "closed", "data")
            os.mkdir(os.path.dirname(node.data))
            os.chmod(os.path.dirname(node.data), stat.S_IRUSR)
            self.refused_start(node, node.data)

    def test_occupied_ports(self):
        node = self.single_node()
        for attribute in ("client_address", "peer_address", "http_address"):
            other = self.node("other-" + attribute, flags=["--init"])
            setattr(other, attribute, getattr(node, attribute))
            self.refused_start(other, getattr(node, attribute))

    def test_listening_beyond_loopback_needs_insecure(self):
        for attribute in ("client_address", "peer_address"):
            node = self.node("open-" + attribute, flags=["--init"])
            port = getattr(node, attribute).rsplit(":", 1)[1]
            setattr(node, attribute, f"0.0.0.0:{port}")
            self.refused_start(node, "--insecure")

    def test_copy_of_a_data_directory_beside_the_original(self):
        cluster = self.cluster(3)
        put(cluster[0], b"k", b"v")
        self.assertEqual(0, cluster[2].stop())
        copy = self.node("copy")
        shutil.copytree(cluster[2].data, copy.data)
        cluster[2].start().wait_ready()
        copy.name = cluster[2].name
        copy.location = cluster[2].location
        copy.seeds = cluster[2].seeds
        copy.start()
        # Whatever becomes of the copy, the original's data stays readable.
        for node in cluster:
            self.assertEqual([b"v"], values(get(node, b"k")))

    def test_peer_of_another_cluster_is_refused(self):
        one, two = self.cluster(3), self.single_node(name="alone")
        put(one[0], b"k", b"one")
        put(two, b"k", b"two")
        self.assertEqual(0, two.stop())
        two.flags = []
        two.seeds = [one[0].peer_address]
        two.start()
        harness.wait_until(lambda: "cluster" in two.log_text().lower() or not two.running(),
                           20, "the refusal in the log")
        status = one[0].admin.Status(admin_pb2.StatusRequest(), timeout=10)
        members = {n.name for n in status.nodes if n.node_number}
        self.assertEqual({"n1", "n2", "n3"}, members)
        self.assertEqual([b"one"], values(get(one[1], b"k")))

    def test_location_that_differs_from_the_ring(self):
        cluster = self.cluster(3)
        put(cluster[0], b"k", b"v")
        self.assertEqual(0, cluster[1].stop())
        right = cluster[1].location
        cluster[1].location = right.replace("rack=r2", "rack=r9")
        self.refused_start(cluster[1], "r2", "r9")
        cluster[1].location = right
        cluster[1].start().wait_ready()
        self.assertEqual([b"v"], values(get(cluster[1], b"k", r=3)))


if __name__ == "__main__":
    harness.main()
