#!/usr/bin/env python3
"""Measures RingKV beside bare gRPC and bare RocksDB, in interleaved rounds.

Each round runs every measurement once, so that whatever the machine does during
a round falls on all of them. A ratio is made inside its round; the table shows
the median of the rounds and the least and greatest. scripts/bench builds what
this needs and starts it.
"""

import argparse
import dataclasses
import datetime
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "integration"))

harness = None  # imported once the arguments are known to be good

TICKS = os.sysconf("SC_CLK_TCK")
NODES = 3
PIPELINE_IN_FLIGHT = 512
UNARY_IN_FLIGHT = 64


def say(text):
    print(text, file=sys.stderr, flush=True)


# --- processes ---

def cpu_seconds(pids):
    """User and system time of processes so far."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def wait_until_quiet(pids, seconds=20):
    """Until the servers use less than 6 % of a core: flushes and compactions of
    one measurement must not fall on the next."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        before = cpu_seconds(pids)
        harness._pause.wait(0.5)
        if cpu_seconds(pids) - before < 0.03:
            return


def run_json(command, what):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            stdin=subprocess.DEVNULL, timeout=3600)
    if result.returncode != 0:
        raise SystemExit(f"{what}: exit code {result.returncode}\n"
                         f"{' '.join(command)}\n"
                         f"{result.stdout.decode(errors='replace')}\n"
                         f"{result.stderr.decode(errors='replace')}")
    return json.loads(result.stdout)


def percentile(run, name):
    return run["latency_us"][name]


# --- measurements ---

@dataclasses.dataclass
class Settings:
    rounds: int
    seconds: float
    warmup: float
    keys: int
    value_size: int
    full: bool

    def times(self):
        return ["--seconds", str(self.seconds), "--warmup", str(self.warmup)]


@dataclasses.dataclass
class Measurement:
    """One line of the table."""
    name: str
    take: object  # () -> figures of one round
    # Names of measurements whose throughput (or p50) this one is divided by.
    beside: tuple = ()
    rounds: list = dataclasses.field(default_factory=list)


def figures(run, cpu_servers=None, settings=None):
    """What is kept of one run. CPU of the servers was taken over the warm-up as
    well, of which the share is known."""
    ops = run["throughput"]
    cpu = run["cpu_us_per_operation"]
    if cpu_servers is not None and run["operations"] > 0:
        share = run["seconds"] / (run["seconds"] + settings.warmup)
        cpu += cpu_servers * share * 1e6 / run["operations"]
    return {"throughput": ops, "cpu_us": cpu,
            "p50_us": percentile(run, "p50"), "p99_us": percentile(run, "p99"),
            "p99.9_us": percentile(run, "p99.9"), "max_us": percentile(run, "max"),
            "operations": run["operations"], "failed": run["failed"],
            "unknown": run["unknown"]}


def echo(settings, api, op, in_flight=UNARY_IN_FLIGHT, items=1):
    """Bare gRPC: one server process, one client process."""
    program = harness.program("grpc_echo")
    address = f"127.0.0.1:{harness.free_port()}"
    server = subprocess.Popen(
        [*harness.WITH_US, program, "--serve", "--address", address, "--api", api,
         "--value-size", str(settings.value_size)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        if server.stdout.readline() != b"ready\n":
            raise SystemExit("grpc_echo does not serve")
        before = cpu_seconds([server.pid])
        result = run_json(
            [program, "--address", address, "--api", api, "--op", op, "--items", str(items),
             "--in-flight", str(in_flight), "--value-size", str(settings.value_size),
             *settings.times()], f"bare gRPC {api} {op}")
        return figures(result["run"], cpu_seconds([server.pid]) - before, settings)
    finally:
        server.kill()
        server.wait()


class Rocks:
    """Bare RocksDB in a folder of its own."""

    def __init__(self, settings, folder):
        self.settings = settings
        self.path = os.path.join(folder, "rocksdb")

    def run(self, *flags):
        fresh = not os.path.exists(self.path)
        result = run_json(
            [harness.program("rocksdb_baseline"), "--data-dir", self.path,
             "--keys", str(self.settings.keys), "--value-size",
             str(self.settings.value_size), *(["--load"] if fresh else []),
             *flags, *self.settings.times()], "bare RocksDB")
        return figures(result["run"])


class Ring:
    """The cluster under test."""

    def __init__(self, settings, folder):
        self.settings = settings
        nodes = [harness.Node(folder, f"n{i + 1}", location=f"rack=r{i + 1},host=h{i + 1}")
                 for i in range(NODES)]
        self.cluster = harness.Cluster(folder, nodes)
        self.loaded = set()

    def start(self):
        self.cluster.start().init()

    def pids(self):
        return [node.process.pid for node in self.cluster]

    def stop(self):
        for node in self.cluster:
            node.close()

    def keyspace(self, mode, durability="interval"):
        name = f"bench-{mode}-{durability}"
        if name not in self.loaded:
            harness.kvctl("keyspace", "create", name, "--mode", mode, "--durability",
                          durability, endpoint=self.cluster.endpoints)
            say(f"  loading {self.settings.keys:,} keys into {name}")
            run_json(self.command(name) + ["--load-only", "--api", "pipeline",
                                           "--in-flight", str(PIPELINE_IN_FLIGHT)],
                     f"loading {name}")
            self.loaded.add(name)
            wait_until_quiet(self.pids())
        return name

    def command(self, keyspace):
        return [harness.program("kvbench"), "--endpoint", self.cluster.endpoints,
                "--keyspace", keyspace, "--keys", str(self.settings.keys),
                "--value-size", str(self.settings.value_size), "--quiet", "-o", "json"]

    def run(self, workload, mode="siblings", api="unary", in_flight=UNARY_IN_FLIGHT,
            flags=(), durability="interval"):
        keyspace = self.keyspace(mode, durability)
        wait_until_quiet(self.pids())
        before = cpu_seconds(self.pids())
        result = run_json(
            self.command(keyspace) + ["--skip-load", "--workload", workload, "--api", api,
                                      "--in-flight", str(in_flight), *flags,
                                      *self.settings.times()],
            f"kvbench {workload} {api}")
        return figures(result["run"], cpu_seconds(self.pids()) - before, self.settings)


def measurements(settings, ring, rocks):
    one = {"in_flight": 1}
    pipe = {"api": "pipeline", "in_flight": PIPELINE_IN_FLIGHT}
    rows = []

    def add(name, take, *beside):
        rows.append(Measurement(name, take, beside))

    for op in ("put", "get"):
        add(f"gRPC echo, queues, {op}", lambda op=op: echo(settings, "queue", op))
        add(f"gRPC echo, callbacks, {op}", lambda op=op: echo(settings, "callback", op))
        add(f"gRPC stream of 32, {op}",
            lambda op=op: echo(settings, "stream", op, PIPELINE_IN_FLIGHT, 32),
            f"gRPC echo, queues, {op}")
    add("RocksDB put", lambda: rocks.run("--op", "put"))
    add("RocksDB put, batches of 32", lambda: rocks.run("--op", "put", "--batch", "32"))
    add("RocksDB get", lambda: rocks.run("--op", "get"))
    for op in ("put", "get"):
        yardsticks = (f"gRPC echo, queues, {op}", f"RocksDB {op}")
        modes = ("siblings", "lww") if op == "put" else ("siblings",)
        for mode in modes:
            label = f"{op} ({mode})" if op == "put" else op
            add(f"RingKV {label}, unary",
                lambda op=op, mode=mode: ring.run(op, mode), *yardsticks)
            add(f"RingKV {label}, pipeline",
                lambda op=op, mode=mode: ring.run(op, mode, **pipe), *yardsticks)
    for op in ("put", "get"):
        add(f"gRPC echo, {op}, 1 in flight",
            lambda op=op: echo(settings, "queue", op, 1))
        add(f"RingKV {op}, 1 in flight",
            lambda op=op: ring.run(op, "siblings", **one), f"gRPC echo, {op}, 1 in flight")
    if settings.full:
        add("RocksDB put, synced, 64 writers",
            lambda: rocks.run("--op", "put", "--sync", "--threads", "64"))
        add("RingKV put (siblings), unary, synced",
            lambda: ring.run("put", durability="sync"), "gRPC echo, queues, put")
        add("RingKV put (siblings), pipeline, synced",
            lambda: ring.run("put", durability="sync", **pipe), "gRPC echo, queues, put")
    return rows


def run_rounds(rows, settings):
    begin = time.monotonic()
    for number in range(settings.rounds):
        for index, row in enumerate(rows):
            row.rounds.append(row.take())
            done = number * len(rows) + index + 1
            left = (time.monotonic() - begin) / done * (settings.rounds * len(rows) - done)
            say(f"  round {number + 1}/{settings.rounds}  {row.name:40} "
                f"{row.rounds[-1]['throughput']:>11,.0f} ops/s   "
                f"{left / 60:4.1f} min left")


# --- YCSB ---

def ycsb(settings, ring):
    """Workloads A to F on one keyspace, in YCSB's order: D and E insert, so they
    come last."""
    rows = []
    for workload in "abcfde":
        wait_until_quiet(ring.pids())
        keyspace = ring.keyspace("siblings")
        result = run_json(
            ring.command(keyspace) + ["--skip-load", "--workload", workload,
                                      *settings.times()], f"workload {workload}")
        run = result["run"]
        rows.append({"workload": workload.upper(), "throughput": run["throughput"],
                     "failed": run["failed"], "unknown": run["unknown"],
                     "kinds": {kind: each["latency_us"]
                               for kind, each in run["kinds"].items()}})
        say(f"  workload {workload.upper()}  {run['throughput']:>11,.0f} ops/s")
    return sorted(rows, key=lambda row: row["workload"])


# --- results ---

def spread(values, form):
    return (f"{form(statistics.median(values))} "
            f"({form(min(values))}..{form(max(values))})")


def short_time(micros):
    if micros < 1000:
        return f"{micros:.0f} us"
    return f"{micros / 1000:.3g} ms" if micros < 1e6 else f"{micros / 1e6:.3g} s"


def summarise(rows):
    by_name = {row.name: row for row in rows}
    out = []
    for row in rows:
        entry = {"name": row.name, "rounds": row.rounds, "ratios": {}}
        for figure in ("throughput", "cpu_us", "p50_us", "p99_us"):
            values = [each[figure] for each in row.rounds]
            entry[figure] = {"median": statistics.median(values), "min": min(values),
                             "max": max(values)}
        for other in row.beside:
            if other not in by_name:
                continue
            pairs = list(zip(row.rounds, by_name[other].rounds))
            entry["ratios"][other] = {
                "throughput": [mine["throughput"] / theirs["throughput"]
                               for mine, theirs in pairs],
                "p50": [mine["p50_us"] / theirs["p50_us"] for mine, theirs in pairs]}
        out.append(entry)
    return out


def table(summary):
    lines = ["| what | ops/s | CPU us/op | p50 | p99 | to bare gRPC | to bare RocksDB |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for entry in summary:
        cells = {"grpc": "", "rocksdb": ""}
        for other, ratio in entry["ratios"].items():
            kind = "rocksdb" if other.startswith("RocksDB") else "grpc"
            if other.endswith("1 in flight"):
                cells[kind] = "p50 " + spread(ratio["p50"], lambda v: f"{v:.2f}")
            else:
                cells[kind] = spread(ratio["throughput"], lambda v: f"{v:.2f}")
        values = [each["throughput"] for each in entry["rounds"]]
        lines.append(
            f"| {entry['name']} | {spread(values, lambda v: f'{v:,.0f}')} "
            f"| {entry['cpu_us']['median']:.1f} | {short_time(entry['p50_us']['median'])} "
            f"| {short_time(entry['p99_us']['median'])} | {cells['grpc']} "
            f"| {cells['rocksdb']} |")
    return "\n".join(lines)


def ycsb_table(rows):
    lines = ["| workload | ops/s | operation | p50 | p95 | p99 | p99.9 |",
             "| --- | ---: | --- | ---: | ---: | ---: | ---: |"]
    for row in rows:
        for index, (kind, latency) in enumerate(row["kinds"].items()):
            first = (row["workload"], f"{row['throughput']:,.0f}") if index == 0 else ("", "")
            lines.append(f"| {first[0]} | {first[1]} | {kind} | "
                         + " | ".join(short_time(latency[name])
                                      for name in ("p50", "p95", "p99", "p99.9")) + " |")
    return "\n".join(lines)


def machine():
    model = ""
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    with open("/proc/meminfo") as file:
        memory = int(re.search(r"MemTotal:\s+(\d+)", file.read()).group(1)) // 1024
    revision = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return {"cpu": model, "cores": os.cpu_count(), "memory_mib": memory,
            "kernel": platform.release(), "revision": revision.stdout.decode().strip(),
            "load_before": os.getloadavg()[0],
            "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}


def positive(kind):
    def parse(text):
        value = kind(text)
        if not 0 < value < 1e12:
            raise ValueError
        return value
    parse.__name__ = f"number above 0 ({kind.__name__})"
    return parse


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench", allow_abbrev=False,
                                     description=__doc__.split("\n\n")[0])
    parser.add_argument("--full", action="store_true",
                        help="1,000,000 keys, more and longer rounds, YCSB workloads, "
                             "synced writes")
    parser.add_argument("--rounds", type=positive(int))
    parser.add_argument("--seconds", type=positive(float), help="of each measurement")
    parser.add_argument("--keys", type=positive(int))
    parser.add_argument("--value-size", type=positive(int), default=100)
    parser.add_argument("--only", metavar="PATTERN",
                        help="measurements whose name matches this regular expression")
    parser.add_argument("--json", metavar="FILE", help="all figures [build/bench.json]")
    parser.add_argument("--check", action="store_true",
                        help="look at the arguments and stop")
    flags = parser.parse_args()
    if flags.only:
        try:
            re.compile(flags.only)
        except re.error as error:
            parser.error(f"--only: {error}")
    if flags.check:
        sys.exit(0)
    return flags


def main():
    global harness
    flags = arguments()
    import harness as imported
    harness = imported
    full = flags.full
    settings = Settings(
        rounds=flags.rounds or (5 if full else 3),
        seconds=flags.seconds or (10 if full else 3), warmup=2 if full else 1,
        keys=flags.keys or (1_000_000 if full else 100_000),
        value_size=flags.value_size, full=full)
    path = flags.json or os.path.join(harness.BUILD, "bench.json")
    info = machine()
    folder = tempfile.mkdtemp(prefix="ringkv-bench-")
    ring = Ring(settings, folder)
    # So that nodes end with this however it ends.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(130))
    done = False
    try:
        say(f"{info['cpu']}, {info['cores']} cores, load {info['load_before']:.2f}; "
            f"{settings.keys:,} keys, values of {settings.value_size} B")
        ring.start()
        rows = measurements(settings, ring, Rocks(settings, folder))
        if flags.only:
            rows = [row for row in rows if re.search(flags.only, row.name)]
            if not rows:
                raise SystemExit(f"no measurement matches {flags.only!r}")
        run_rounds(rows, settings)
        summary = summarise(rows)
        result = {"machine": info, "settings": dataclasses.asdict(settings),
                  "measurements": summary}
        print(f"\n{info['cpu']}, {info['cores']} cores shared by clients and servers; "
              f"{NODES} nodes, N=3 R=2 W=2, {settings.keys:,} keys, values of "
              f"{settings.value_size} B; median (least..greatest) of "
              f"{settings.rounds} rounds of {settings.seconds:g} s\n")
        print(table(summary))
        if full and not flags.only:
            result["ycsb"] = ycsb(settings, ring)
            print("\n" + ycsb_table(result["ycsb"]))
        with open(path, "w") as file:
            json.dump(result, file, indent=1)
            file.write("\n")
        say(f"\nall figures are in {path}")
        done = True
    finally:
        if not done:
            for node in ring.cluster:
                say(node.tail(15))
        ring.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
