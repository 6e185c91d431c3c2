"""kvctl against a real cluster: playground, load through a crash, dump, verify."""

import json
import os
import signal
import subprocess
import unittest

import harness
from harness import kvctl, kvctl_json, program, wait_until


def gone(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


class Playground:
    """A `kvctl playground` process with what it printed."""

    def __init__(self, folder, *flags, environment=None):
        number = sum(name.endswith(".json") for name in os.listdir(folder))
        self.out = os.path.join(folder, f"playground{number}.json")
        self.log = os.path.join(folder, f"playground{number}.log")
        with open(self.out, "wb") as out, open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [program("kvctl"), "playground", "-o", "json", *flags],
                stdin=subprocess.DEVNULL, stdout=out, stderr=log, env=environment)
        self.info = wait_until(self._ready, 60, self._text)
        self.endpoint = ",".join(self.info["endpoints"])
        self.pids = [node["pid"] for node in self.info["nodes"]]

    def _text(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def _ready(self):
        if self.process.poll() is not None:
            raise AssertionError(f"exit code {self.process.returncode}: {self._text()}")
        with open(self.out, encoding="utf-8") as file:
            try:
                return json.load(file)
            except ValueError:
                return None

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=60)


class KvctlTest(harness.TestCase):
    def playground(self, *flags, **options):
        playground = Playground(self.folder, *flags, **options)
        self.addCleanup(playground.kill)
        return playground

    def test_a_load_goes_on_through_a_crash_and_nothing_is_missing(self):
        playground = self.playground("--nodes", "5", "--racks", "3")
        endpoint = playground.endpoint
        self.assertEqual("healthy", kvctl_json("status", endpoint=endpoint)["health"])
        records = {f"key {i}": "v" * 300 + str(i) for i in range(20000)}
        path = os.path.join(self.folder, "records.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            for key, value in records.items():
                file.write(json.dumps({"key": key, "value": value}) + "\n")
        load = subprocess.Popen(
            [program("kvctl"), "load", path, "--endpoint", endpoint, "-o", "json"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(load.kill)

        def some_are_written():
            keys = kvctl_json("scan", "--limit", "500", "--keys-only", endpoint=endpoint)
            return len(keys["entries"]) == 500
        wait_until(some_are_written, 60, "the first 500 records")
        os.kill(playground.pids[3], signal.SIGKILL)
        out, err = load.communicate(timeout=180)
        self.assertEqual(0, load.returncode, err.decode())
        result = json.loads(out)
        self.assertEqual((len(records), 0, 0),
                         (result["written"], result["failed"], result["unknown"]))

        checked = kvctl_json("verify", path, "--values-only", endpoint=endpoint, seconds=180)
        self.assertEqual(len(records), checked["equal"], checked)
        dump = os.path.join(self.folder, "dump.jsonl")
        kvctl("dump", dump, endpoint=endpoint, seconds=180)
        with open(dump, encoding="utf-8") as file:
            dumped = {entry["key"]: entry["value"] for entry in map(json.loads, file)}
        self.assertEqual(records, dumped)
        status = kvctl("status", endpoint=endpoint, check=False)
        self.assertEqual(4, status.returncode, status.stdout.decode())
        self.assertEqual(0, playground.stop())

    def test_a_stopped_playground_leaves_no_process_and_no_file(self):
        playground = self.playground("--nodes", "3", "--racks", "1")
        kvctl("put", "greeting", "hello", endpoint=playground.endpoint)
        self.assertEqual(b"hello\n", kvctl("get", "greeting", endpoint=playground.endpoint).stdout)
        self.assertEqual(0, playground.stop())
        for pid in playground.pids:
            self.assertTrue(gone(pid), pid)
        self.assertFalse(os.path.exists(playground.info["folder"]))

    def test_nodes_end_when_their_playground_is_killed(self):
        playground = self.playground("--nodes", "3", "--data-dir",
                                     os.path.join(self.folder, "data"))
        playground.kill()
        wait_until(lambda: all(gone(pid) for pid in playground.pids), 60,
                   "the end of all nodes")

    def test_a_playground_with_a_folder_keeps_its_data(self):
        data = os.path.join(self.folder, "data")
        for round_number in range(2):
            playground = self.playground("--nodes", "3", "--data-dir", data)
            if round_number == 0:
                kvctl("put", "greeting", "hello", endpoint=playground.endpoint)
            self.assertEqual(b"hello\n",
                             kvctl("get", "greeting", endpoint=playground.endpoint).stdout)
            self.assertEqual(0, playground.stop())

    def test_a_playground_is_stopped_from_elsewhere_with_its_added_nodes(self):
        temporary = os.path.join(self.folder, "tmp")
        os.mkdir(temporary)
        environment = {**os.environ, "TMPDIR": temporary}
        nothing = kvctl("playground", "stop", check=False, env=environment)
        self.assertEqual(1, nothing.returncode)
        self.assertIn(b"no playground of yours runs", nothing.stderr)
        playground = self.playground("--nodes", "3", environment=environment)
        added = subprocess.Popen(
            [*harness.WITH_US, program("kvctl"), "playground", "add", "--endpoint",
             playground.endpoint], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            env=environment)
        self.addCleanup(added.communicate)
        self.addCleanup(added.kill)
        self.assertIn(b"n4 (", added.stdout.readline())
        kvctl("join", "n4", "--yes", endpoint=playground.endpoint)
        stopped = kvctl_json("playground", "stop", env=environment)["stopped"]
        self.assertEqual(2, len(stopped))
        self.assertEqual(0, added.wait(30))
        self.assertEqual(0, playground.process.wait(30))
        self.assertEqual([], os.listdir(temporary))

    def test_one_of_two_playgrounds_is_named_by_its_folder(self):
        data = [os.path.join(self.folder, f"data{i}") for i in range(2)]
        first = self.playground("--nodes", "1", "--data-dir", data[0])
        twice = kvctl("playground", "--nodes", "1", "--data-dir", data[0], check=False)
        self.assertEqual(1, twice.returncode)
        self.assertIn(b"a playground runs in", twice.stderr)
        second = self.playground("--nodes", "1", "--data-dir", data[1])
        kvctl("playground", "stop", "--data-dir", data[0])
        self.assertEqual(0, first.process.wait(30))
        self.assertIsNone(second.process.poll())
        again = kvctl("playground", "stop", "--data-dir", data[0], check=False)
        self.assertEqual(1, again.returncode)
        self.assertIn(b"no playground runs in", again.stderr)
        kvctl("playground", "stop", "--data-dir", data[1])

    def test_ring_check_and_keyspaces(self):
        playground = self.playground("--nodes", "5")
        endpoint = playground.endpoint
        self.assertTrue(kvctl_json("ring", "check", endpoint=endpoint)["ok"])
        ring = kvctl_json("ring", endpoint=endpoint)
        self.assertEqual((0, 0), (ring["host_violations"], ring["rack_violations"]))
        kvctl("keyspace", "create", "logs", "--mode", "lww", endpoint=endpoint)
        kvctl("put", "k", "v", "--keyspace", "logs", endpoint=endpoint)
        located = kvctl_json("locate", "k", "--keyspace", "logs", endpoint=endpoint)
        self.assertEqual(3, sum(copy["replica"] for copy in located["copies"]))
        kvctl("keyspace", "drop", "logs", "--yes", endpoint=endpoint)
        self.assertEqual(1, kvctl("get", "k", "--keyspace", "logs", endpoint=endpoint,
                                  check=False).returncode)


if __name__ == "__main__":
    unittest.main(verbosity=2)
