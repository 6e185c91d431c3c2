// A client of RingKV in Node.js, straight from the .proto files. Run by
// node_client_test.py, which starts the cluster.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const definition = loader.loadSync(["ringkv/v1/kv.proto", "ringkv/v1/admin.proto"], {
  includeDirs: [process.env.RINGKV_PROTOS],
  longs: String,
});
const { ringkv } = grpc.loadPackageDefinition(definition);
const clients = process.env.RINGKV_ENDPOINTS.split(",").map(
  (endpoint) => new ringkv.v1.KeyValue(endpoint, grpc.credentials.createInsecure()));
after(() => clients.forEach((client) => client.close()));

function call(client, method, request) {
  return new Promise((resolve, reject) => {
    client[method](request, { deadline: Date.now() + 10000 }, (error, answer) =>
      error ? reject(error) : resolve(answer));
  });
}

const bytes = (text) => Buffer.from(text);
const values = (answer) => (answer.siblings ?? []).map((s) => s.value.toString()).sort();

test("put, get and delete", async () => {
  const key = Buffer.from([0, 255, 1]);
  const written = await call(clients[0], "Put", { key, value: bytes("hello") });
  assert.ok(written.context);
  const read = await call(clients[1], "Get", { key });
  assert.deepEqual(values(read), ["hello"]);
  await call(clients[2], "Delete", { key, context: read.context });
  assert.deepEqual(values(await call(clients[0], "Get", { key })), []);
});

test("two concurrent writers leave two siblings, their context resolves them", async () => {
  const key = bytes("cart");
  const { context } = await call(clients[0], "Put", { key, value: bytes("base") });
  await Promise.all([
    call(clients[0], "Put", { key, value: bytes("milk"), context }),
    call(clients[1], "Put", { key, value: bytes("bread"), context }),
  ]);
  const both = await call(clients[2], "Get", { key, r: 3 });
  assert.deepEqual(values(both), ["bread", "milk"]);
  const resolved = await call(clients[2], "Put", {
    key, value: bytes("bread,milk"), context: both.context,
  });
  assert.ok(resolved.context);
  for (const client of clients) {
    assert.deepEqual(values(await call(client, "Get", { key, r: 3 })), ["bread,milk"]);
  }
});

test("errors carry gRPC codes", async () => {
  await assert.rejects(call(clients[0], "Get", { key: bytes("") }),
    { code: grpc.status.INVALID_ARGUMENT });
  await assert.rejects(call(clients[0], "Get", { key: bytes("k"), keyspace: "nowhere" }),
    { code: grpc.status.NOT_FOUND });
});

test("scan streams every entry", async () => {
  const wanted = [];
  for (let i = 0; i < 20; ++i) {
    wanted.push(`scan${String(i).padStart(2, "0")}`);
    await call(clients[i % 3], "Put", { key: bytes(wanted[i]), value: bytes("v") });
  }
  const found = [];
  const stream = clients[0].Scan({ keysOnly: true }, { deadline: Date.now() + 10000 });
  for await (const page of stream) {
    for (const entry of page.entries) found.push(entry.key.toString());
  }
  assert.deepEqual(found.filter((key) => key.startsWith("scan")).sort(), wanted);
});

test("reflection lists the services", async () => {
  const reflection = grpc.loadPackageDefinition(loader.loadSync(
    "grpc/reflection/v1alpha/reflection.proto", { includeDirs: ["/usr/share/grpc-proto"] }));
  const client = new reflection.grpc.reflection.v1alpha.ServerReflection(
    process.env.RINGKV_ENDPOINTS.split(",")[0], grpc.credentials.createInsecure());
  const stream = client.ServerReflectionInfo({ deadline: Date.now() + 10000 });
  const answer = new Promise((resolve, reject) => {
    stream.on("data", resolve);
    stream.on("error", reject);
  });
  stream.write({ listServices: "*" });
  const names = (await answer).listServicesResponse.service.map((s) => s.name);
  stream.end();
  client.close();
  for (const name of ["ringkv.v1.KeyValue", "ringkv.v1.Admin", "grpc.health.v1.Health"]) {
    assert.ok(names.includes(name), `${name} in ${names}`);
  }
});
