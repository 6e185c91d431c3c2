"""A client in another language, straight from the .proto files, over gRPC."""

import queue
import unittest

import grpc

import harness
from harness import get, put, values
from health.v1 import health_pb2, health_pb2_grpc
from reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from ringkv.v1 import admin_pb2, kv_pb2


class PythonClientTest(harness.TestCase):

    def setUp(self):
        super().setUp()
        self.nodes3 = self.cluster(3)

    def test_put_get_delete(self):
        first, second, third = self.nodes3
        answer = put(first, b"k\x00\xff", b"v\x00\xfe")
        self.assertTrue(answer.HasField("context"))
        self.assertEqual(0, answer.unresolved_siblings)
        self.assertGreaterEqual(answer.replica_acks + answer.stand_in_acks, 2)
        got = get(second, b"k\x00\xff")
        self.assertEqual([b"v\x00\xfe"], values(got))
        self.assertTrue(got.HasField("context"))
        third.kv.Delete(kv_pb2.DeleteRequest(key=b"k\x00\xff", context=got.context),
                        timeout=10)
        gone = get(first, b"k\x00\xff")
        self.assertEqual([], values(gone))
        self.assertTrue(gone.HasField("context"), "a put after a delete names it")
        never = get(first, b"never written")
        self.assertEqual([], values(never))
        self.assertFalse(never.HasField("context"))

    def test_plain_put_replaces_what_is_there(self):
        for number, node in enumerate([*self.nodes3] * 3):
            put(node, b"plain", b"%d" % number)
        self.assertEqual([b"8"], values(get(self.nodes3[0], b"plain")))

    def test_two_writers_leave_two_siblings_that_their_context_resolves(self):
        first, second, third = self.nodes3
        context = put(first, b"cart", b"base").context
        put(first, b"cart", b"milk", context=context)
        late = put(second, b"cart", b"bread", context=context)
        self.assertFalse(late.HasField("context"), "the writer has not seen the other")
        self.assertEqual(1, late.unresolved_siblings)
        both = get(third, b"cart")
        self.assertEqual([b"bread", b"milk"], values(both))
        resolved = put(third, b"cart", b"bread,milk", context=both.context)
        self.assertTrue(resolved.HasField("context"))
        for node in self.nodes3:
            self.assertEqual([b"bread,milk"], values(get(node, b"cart", r=3)))

    def test_writers_at_the_same_moment_leave_one_sibling_each(self):
        context = put(self.nodes3[0], b"race", b"base").context
        calls = [node.kv.Put.future(kv_pb2.PutRequest(
            key=b"race", value=b"from %d" % i, context=context), timeout=10)
            for i, node in enumerate(self.nodes3)]
        for call in calls:
            call.result()
        self.assertEqual([b"from 0", b"from 1", b"from 2"],
                         values(get(self.nodes3[1], b"race", r=3)))

    def test_blind_put_is_concurrent_with_everything(self):
        put(self.nodes3[0], b"blind", b"a")
        answer = put(self.nodes3[1], b"blind", b"b", blind=True)
        self.assertEqual(1, answer.unresolved_siblings)
        self.assertEqual([b"a", b"b"], values(get(self.nodes3[2], b"blind")))

    def test_delete_with_an_old_context_leaves_the_later_value(self):
        old = put(self.nodes3[0], b"old", b"1").context
        put(self.nodes3[1], b"old", b"2", context=old)
        answer = self.nodes3[2].kv.Delete(
            kv_pb2.DeleteRequest(key=b"old", context=old), timeout=10)
        self.assertEqual(1, answer.unresolved_siblings)
        self.assertEqual([b"2"], values(get(self.nodes3[0], b"old")))

    def test_strict_reads_see_strict_writes(self):
        for number in range(20):
            put(self.nodes3[number % 3], b"strict", b"%d" % number,
                quorum=kv_pb2.QUORUM_STRICT)
            self.assertEqual([b"%d" % number], values(
                get(self.nodes3[(number + 1) % 3], b"strict", quorum=kv_pb2.QUORUM_STRICT)))

    def test_batch_answers_each_operation_in_order(self):
        operations = [
            kv_pb2.Operation(put=kv_pb2.PutRequest(key=b"b1", value=b"one")),
            kv_pb2.Operation(put=kv_pb2.PutRequest(key=b"", value=b"no key")),
            kv_pb2.Operation(put=kv_pb2.PutRequest(key=b"b2", value=b"two")),
            kv_pb2.Operation(get=kv_pb2.GetRequest(key=b"b3")),
            kv_pb2.Operation(get=kv_pb2.GetRequest(key=b"b3", keyspace="nowhere")),
        ]
        results = self.nodes3[0].kv.Batch(
            kv_pb2.BatchRequest(operations=operations), timeout=10).results
        self.assertEqual(
            [0, grpc.StatusCode.INVALID_ARGUMENT.value[0], 0, 0,
             grpc.StatusCode.NOT_FOUND.value[0]], [r.code for r in results])
        self.assertEqual([b"two"], values(get(self.nodes3[1], b"b2")))

    def test_pipeline_matches_results_by_id(self):
        requests = queue.Queue()
        stream = self.nodes3[0].kv.Pipeline(iter(requests.get, None), timeout=30)
        total = 300
        for begin in range(0, total, 10):
            requests.put(kv_pb2.PipelineRequest(items=[
                kv_pb2.PipelineRequest.Item(id=i, operation=kv_pb2.Operation(
                    put=kv_pb2.PutRequest(key=b"p%d" % i, value=b"%d" % i)))
                for i in range(begin, begin + 10)]))
        seen = {}
        for response in stream:
            for item in response.items:
                self.assertNotIn(item.id, seen)
                seen[item.id] = item.result.code
            if len(seen) == total:
                requests.put(None)
        self.assertEqual({i: 0 for i in range(total)}, seen)
        self.assertEqual([b"299"], values(get(self.nodes3[2], b"p299")))

    def test_scan_pages_through_everything_once(self):
        wanted = {b"scan%d" % i: b"%d" % i for i in range(250)}
        for key, value in wanted.items():
            put(self.nodes3[0], key, value)
        put(self.nodes3[0], b"scan gone", b"x")
        self.nodes3[0].kv.Delete(kv_pb2.DeleteRequest(key=b"scan gone"), timeout=10)
        found, cursor, pages = {}, b"", 0
        while True:
            for page in self.nodes3[pages % 3].kv.Scan(
                    kv_pb2.ScanRequest(cursor=cursor, limit=40), timeout=30):
                for entry in page.entries:
                    self.assertNotIn(entry.key, found)
                    found[entry.key] = entry.siblings[0].value
                cursor = page.cursor
            pages += 1
            if not cursor:
                break
        self.assertEqual(wanted, found)
        self.assertGreater(pages, 5)

    def test_watch_ring_shows_members_and_later_epochs(self):
        stream = self.nodes3[0].kv.WatchRing(kv_pb2.WatchRingRequest(), timeout=30)
        ring = next(stream).ring
        self.assertEqual([1, 2, 3], [m.number for m in ring.members])
        self.assertEqual({"r1", "r2", "r3"}, {m.location.rack for m in ring.members})
        self.assertEqual(["default"], [k.name for k in ring.keyspaces])
        self.nodes3[1].admin.CreateKeyspace(admin_pb2.CreateKeyspaceRequest(
            keyspace={"name": "other", "n": 3, "r": 2, "w": 2}), timeout=10)
        later = next(stream).ring
        self.assertGreater(later.epoch, ring.epoch)
        self.assertIn("other", [k.name for k in later.keyspaces])
        stream.cancel()

    def test_reflection_lists_the_services(self):
        stub = reflection_pb2_grpc.ServerReflectionStub(self.nodes3[0].connect())
        requests = iter([reflection_pb2.ServerReflectionRequest(list_services="*"),
                         reflection_pb2.ServerReflectionRequest(
                             file_containing_symbol="ringkv.v1.KeyValue.Put")])
        listed, described = stub.ServerReflectionInfo(requests, timeout=10)
        names = {s.name for s in listed.list_services_response.service}
        self.assertLessEqual({"ringkv.v1.KeyValue", "ringkv.v1.Admin",
                              "grpc.health.v1.Health"}, names)
        self.assertTrue(described.file_descriptor_response.file_descriptor_proto)

    def test_health_service_answers(self):
        health = health_pb2_grpc.HealthStub(self.nodes3[0].connect())
        for service in ("", "ringkv.v1.KeyValue"):
            answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
            self.assertEqual(health_pb2.HealthCheckResponse.SERVING, answer.status)
        self.refused(grpc.StatusCode.NOT_FOUND, health.Check,
                     health_pb2.HealthCheckRequest(service="no.such.Service"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
