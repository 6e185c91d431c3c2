"""Wrong configurations are found before a node starts, and named."""

import os
import unittest

import harness
from harness import program, run


class BadConfigTest(harness.TestCase):

    def check(self, text, *flags):
        path = os.path.join(self.folder, "node.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        result = run([program("kvnode"), "--check-config", "--config", path, *flags],
                     cwd=self.folder)
        return result.returncode, (result.stdout + result.stderr).decode()

    def test_good_configurations_are_good(self):
        for text in ("", "# nothing but a comment\n",
                     "data_dir: ./here\nname: n1\nlocation: zone=a,rack=r1,host=h1\n",
                     "seeds: [127.0.0.1:7801, 127.0.0.1:7802]\nweight: 0.5\n",
                     "fsync_interval: 50ms\nmemory: 64MiB\nhedged_reads: false\n"):
            code, output = self.check(text)
            self.assertEqual(0, code, text + output)
        self.assertEqual([], [name for name in os.listdir(self.folder)
                              if name != "node.yaml"], "a check makes nothing")

    def test_wrong_configurations_are_named_with_file_key_and_value(self):
        for text, words in (
                ("lisen: 127.0.0.1:7700", ["lisen", "'listen'"]),
                ("data-dir: x", ["data-dir", "data_dir"]),
                ("listen: 127.0.0.1", ["listen", "127.0.0.1"]),
                ("listen: 127.0.0.1:0", ["listen", "127.0.0.1:0"]),
                ("listen: 127.0.0.1:70000", ["listen", "70000"]),
                ("listen: 300.0.0.1:7700", ["listen", "300.0.0.1"]),
                ("listen: 127.0.0.1:7800", ["listen", "peer_listen", "7800"]),
                ("http_listen: 127.0.0.1:7700", ["http_listen", "7700"]),
                ("listen: 0.0.0.0:7700", ["0.0.0.0:7700", "insecure"]),
                ("insecure: true\nlisten: 0.0.0.0:7700", ["advertise"]),
                ("listen: [127.0.0.1:7700", ["node.yaml"]),
                ("- listen", ["node.yaml"]),
                ("name: n1\nname: n2", ["name", "twice"]),
                ("name: 'two words'", ["name", "two words"]),
                ("weight: 0", ["weight", "0"]),
                ("weight: heavy", ["weight", "heavy"]),
                ("weight: 65", ["weight", "65"]),
                ("location: shelf=3", ["location", "shelf"]),
                ("location: rack=a,rack=b", ["location", "rack"]),
                ("fsync_interval: 100", ["fsync_interval", "100"]),
                ("fsync_interval: 5 parsecs", ["fsync_interval", "parsecs"]),
                ("fsync_interval: 0s", ["fsync_interval"]),
                ("memory: 1kb", ["memory", "1kb"]),
                ("memory: many", ["memory", "many"]),
                ("memory: 99999999999999TiB", ["memory"]),
                ("shards: -1", ["shards", "-1"]),
                ("shards: 1.5", ["shards", "1.5"]),
                ("log_level: loud", ["log_level", "loud"]),
                ("init: maybe", ["init", "maybe"]),
                ("init: true\nseeds: 127.0.0.1:7801", ["init", "seeds"]),
                ("seeds: nowhere", ["seeds", "nowhere"]),
                ("data_dir: /dev/null/x", ["data_dir", "/dev/null"]),
                ("data_dir: /dev/null", ["data_dir", "/dev/null"]),
                ("data_dir:", ["data_dir"]),
                ("down_after: 100ms", ["down_after", "heartbeat_interval"])):
            with self.subTest(text=text):
                code, output = self.check(text)
                self.assertEqual(2, code, output)
                for word in words:
                    self.assertIn(word, output)
                self.assertEqual(1, output.strip().count("\n") + 1,
                                 f"one clear line, not {output!r}")

    def test_doubtful_configurations_warn(self):
        for text in ("fsync_interval: 10s", "insecure: true",
                     "heartbeat_interval: 1s\ndown_after: 2s"):
            code, output = self.check(text)
            self.assertEqual(0, code, output)
            self.assertIn("warning", output)

    def test_flags_override_the_file(self):
        self.assertEqual(0, self.check("weight: 1", "--weight", "2")[0])
        self.assertEqual(2, self.check("weight: 1", "--weight", "-2")[0])

    def test_unknown_and_repeated_flags(self):
        for flags, word in ((["--lisen", "127.0.0.1:7700"], "--listen"),
                            (["--name", "a", "--name", "b"], "--name"),
                            (["--name", "a", "--name", "a"], "--name"),
                            (["--no-such-flag"], "--no-such-flag"),
                            (["surplus"], "surplus"),
                            (["--name"], "--name"),
                            (["--insecure", "--insecure"], "--insecure"),
                            (["--config", "a.yaml", "--config", "b.yaml"], "--config"),
                            (["--config", "missing.yaml"], "missing.yaml"),
                            (["--config", "/"], "--config")):
            with self.subTest(flags=flags):
                result = run([program("kvnode"), *flags], cwd=self.folder)
                self.assertEqual(2, result.returncode, result.stderr)
                self.assertIn(word, result.stderr.decode())
                self.assertEqual(b"", result.stdout)

    def test_help_names_every_flag_that_the_file_knows(self):
        result = run([program("kvnode"), "--help"])
        self.assertEqual(0, result.returncode)
        for flag in ("--data-dir", "--name", "--listen", "--peer-listen", "--http-listen",
                     "--seeds", "--location", "--weight", "--init", "--check-config",
                     "--log-level", "--version", "--insecure", "--config"):
            self.assertIn(flag, result.stdout.decode())


if __name__ == "__main__":
    unittest.main(verbosity=2)
