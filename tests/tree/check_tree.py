#!/usr/bin/env python3
"""Reads the source tree and rejects what the compiler cannot: includes that
point upwards, the outside world in code that decides, and text that does not
belong in a repository.

usage: check_tree.py [ROOT]

Prints one line per finding, FILE:LINE: what is wrong, and exits with 1 if there
is any; warnings are printed and do not count.
"""

import fnmatch
import os
import re
import subprocess
import sys
from dataclasses import dataclass

CODE = (".h", ".cc")
LINES_MAX = 800  # beyond: a warning that the file may be ready to be split

# What each folder may include of ours. The longest matching folder decides.
# "proto" stands for generated messages, "grpc" for generated services.
LAYERS = {
    "base": ["base"],
    "storage": ["base", "storage"],
    "membership/ring": ["base", "proto", "membership/ring"],
    "membership": ["base", "proto", "membership"],
    "server": ["base", "storage", "membership", "server"],
    "server/codec": ["base", "proto", "storage", "membership", "server"],
    "server/rpc": ["base", "proto", "grpc", "storage", "membership", "server"],
    "client": ["base", "proto", "grpc", "membership/ring", "client"],
}
# Folders that only adapters of the same layer and programs may include.
ADAPTER_FOLDERS = {"server/rpc": ["server/rpc", "server/kvnode.cc"],
                   "storage/rocksdb": ["storage/rocksdb", "server/rpc",
                                       "server/kvnode.cc"]}

# Who may touch the world: gRPC and RocksDB each in one folder, clocks, threads
# and chance in every adapter.
ADAPTERS = ["server/rpc/*", "storage/rocksdb/*", "server/kvnode.cc", "client/*",
            "*_system.h", "*_system.cc", "base/mutex.h"]
GRPC_USERS = ["server/rpc/*", "server/kvnode.cc", "client/*"]
ROCKSDB_USERS = ["storage/rocksdb/*"]
MACHINE_FOLDERS = ["base", "storage", "membership", "server", "client"]

WORLD_INCLUDES = re.compile(
    r"\"base/mutex\.h\"|<(thread|mutex|shared_mutex|condition_variable|future|chrono|random|ctime|"
    r"time\.h|semaphore|barrier|latch|stop_token|iostream|fstream|filesystem|"
    r"pthread\.h|unistd\.h|fcntl\.h|sys/[^>]*|spdlog/[^>]*|prometheus/[^>]*|"
    r"yaml-cpp/[^>]*)>"
    r"|\"(absl/synchronization/[^\"]*|absl/time/clock\.h|absl/random/[^\"]*|"
    r"spdlog/[^\"]*|prometheus/[^\"]*|yaml-cpp/[^\"]*)\"")
GRPC_INCLUDES = re.compile(r"[<\"](grpc|grpcpp|grpc\+\+)/|\.grpc\.pb\.h\"")
ROCKSDB_INCLUDES = re.compile(r"[<\"]rocksdb/")
WORLD_WORDS = [
    (re.compile(r"\bstd::(jthread|thread|mutex|shared_mutex|recursive_mutex|"
                r"condition_variable|async|promise|future|lock_guard|"
                r"unique_lock|scoped_lock|this_thread)\b"), "a thread or lock"),
    (re.compile(r"\babsl::(Mutex|CondVar|Notification|BlockingCounter)\b"),
     "a thread or lock"),
    (re.compile(r"\b\w+_clock::now\b|\babsl::(Now|GetCurrentTimeNanos)\b|"
                r"\b(clock_gettime|gettimeofday|localtime|gmtime)\s*\(|"
                r"(?<![\w.>:])time\s*\(\s*(nullptr|NULL|0)\s*\)"), "a clock"),
    (re.compile(r"\bstd::(random_device|mt19937(_64)?|default_random_engine|"
                r"uniform_\w+_distribution|shuffle)\b|"
                r"\babsl::(BitGen|InsecureBitGen|Uniform|Bernoulli)\b|"
                r"(?<![\w.>:])(std::)?s?rand\s*\("), "unseeded chance"),
    (re.compile(r"\b(sleep_for|sleep_until|SleepFor|usleep|nanosleep)\b|"
                r"(?<![\w.>:])sleep\s*\("), "a sleep"),
]
HASHED = r"(?:std::unordered_(?:multi)?(?:map|set)|absl::(?:flat|node)_hash_(?:map|set))"

# Tests wait for conditions, never for time to pass.
SLEEPS = re.compile(r"\b(sleep_for|sleep_until|SleepFor|usleep|nanosleep|time\.sleep)\b")
SKIPPED = re.compile(r"\bGTEST_SKIP\b|\bDISABLED_|@unittest\.skip\b|\bskipTest\(")

UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|(?i:\bnot (yet )?implemented\b)")
# Talks about these words, so it holds them.
TEXT_EXEMPT = ["tests/tree/*", ".clang-format", "*/package-lock.json"]


@dataclass
class Finding:
    path: str
    line: int
    text: str
    warning: bool = False

    def __str__(self):
        kind = "warning: " if self.warning else ""
        return f"{self.path}:{self.line}: {kind}{self.text}"


def matches(path, patterns):
    return any(fnmatch.fnmatch(path, pattern) for pattern in patterns)


def inside(path, folder):
    return path == folder or path.startswith(folder + "/")


def layer_of(path, folders):
    """The longest of `folders` that holds `path`, or None."""
    found = [folder for folder in folders if inside(path, folder)]
    return max(found, key=len) if found else None


def without_comments(text):
    """C++ text with comments and the insides of literals blanked, lines kept."""
    out = []
    i, end = 0, len(text)
    while i < end:
        two = text[i:i + 2]
        if two == "//":
            stop = text.find("\n", i)
            i = end if stop < 0 else stop
        elif two == "/*":
            stop = text.find("*/", i + 2)
            stop = end if stop < 0 else stop + 2
            out.append("\n" * text.count("\n", i, stop))
            i = stop
        elif text.startswith('R"', i):
            delimiter = re.match(r'R"([^(\s]*)\(', text[i:])
            close = ")" + (delimiter.group(1) if delimiter else "") + '"'
            stop = text.find(close, i)
            stop = end if stop < 0 else stop + len(close)
            out.append('""' + "\n" * text.count("\n", i, stop))
            i = stop
        elif text[i] == '"' or (text[i] == "'" and not text[i - 1:i].isalnum()):
            quote = text[i]
            j = i + 1
            while j < end and text[j] != quote and text[j] != "\n":
                j += 2 if text[j] == "\\" else 1
            out.append(quote + quote)
            i = j + 1
        else:
            out.append(text[i])
            i += 1
    return "".join(out)


def include_lines(text):
    """(line number, spelling with its brackets) of each include."""
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r"\s*#\s*include\s+([<\"][^>\"]+[>\"])", line)
        if found:
            yield number, found.group(1)


def layer_of_include(name):
    if name.startswith("ringkv/"):
        return "grpc" if name.endswith(".grpc.pb.h") else "proto"
    return name


def check_includes(path, text, findings):
    layer = layer_of(path, LAYERS)
    if layer is None:
        return
    allowed = LAYERS[layer]
    if path.startswith("server/kvnode"):
        allowed = LAYERS["server/rpc"]
    for number, spelling in include_lines(text):
        if not spelling.startswith('"'):
            continue
        name = spelling[1:-1]
        target = layer_of_include(name)
        if target not in ("proto", "grpc"):
            top = name.split("/")[0]
            if top in ("tests", "integration"):
                findings.append(Finding(path, number, f"{name}: includes a test"))
                continue
            if top not in MACHINE_FOLDERS:
                continue  # not ours
        if not any(inside(target, folder) for folder in allowed):
            findings.append(Finding(
                path, number, f"{name}: {layer} may include only {', '.join(allowed)}"))
            continue
        for folder, users in ADAPTER_FOLDERS.items():
            if inside(target, folder) and not any(inside(path, u) for u in users):
                findings.append(Finding(
                    path, number, f"{name}: {folder} is an adapter; machines and "
                    "libraries see its seam"))


def check_world(path, text, code, findings):
    """Clocks, threads, chance, sleeps and foreign libraries stay in adapters."""
    if layer_of(path, MACHINE_FOLDERS) is None:
        return
    for number, spelling in include_lines(text):
        if GRPC_INCLUDES.search(spelling) and not matches(path, GRPC_USERS):
            findings.append(Finding(path, number, f"{spelling}: gRPC outside its adapter"))
        if ROCKSDB_INCLUDES.search(spelling) and not matches(path, ROCKSDB_USERS):
            findings.append(Finding(path, number,
                                    f"{spelling}: RocksDB outside its adapter"))
        if WORLD_INCLUDES.search(spelling) and not matches(path, ADAPTERS):
            findings.append(Finding(path, number, f"{spelling}: outside an adapter"))
    if matches(path, ADAPTERS):
        return
    for number, line in enumerate(code.splitlines(), 1):
        for pattern, what in WORLD_WORDS:
            found = pattern.search(line)
            if found:
                findings.append(Finding(
                    path, number, f"{found.group(0).strip()}: {what} outside an adapter"))


def hashed_names(code):
    """Names declared with a hashed container type."""
    names = set()
    for found in re.finditer(HASHED + r"\s*<", code):
        depth, i = 1, found.end()
        while i < len(code) and depth:
            depth += {"<": 1, ">": -1}.get(code[i], 0)
            i += 1
        declared = re.match(r"\s*&?\s*(\w+)\s*[;={(,)]", code[i:])
        if declared:
            names.add(declared.group(1))
    return names


def check_unordered(path, code, declarations, findings):
    """The order of a hashed container must not reach a decision."""
    if layer_of(path, MACHINE_FOLDERS) is None or matches(path, ADAPTERS):
        return
    names = hashed_names(code) | hashed_names(declarations)
    if not names:
        return
    each = "|".join(sorted(names))
    walked = re.compile(
        rf"\bfor\s*\([^;()]*:\s*(?:\w+(?:\.|->))*({each})\s*\)|"
        rf"\b({each})\s*(?:\.|->)\s*c?begin\s*\(")
    for number, line in enumerate(code.splitlines(), 1):
        found = walked.search(line)
        if found:
            findings.append(Finding(
                path, number, f"{found.group(1) or found.group(2)}: iterates over a "
                "hashed container; its order differs between runs"))


def check_guard(path, text, findings):
    if not path.endswith(".h") or layer_of(path, MACHINE_FOLDERS + ["tests"]) is None:
        return
    wanted = "RINGKV_" + re.sub(r"[^A-Z0-9]", "_", path.upper()) + "_"
    found = re.search(r"^#ifndef\s+(\w+)", text, re.M)
    if not found or found.group(1) != wanted:
        findings.append(Finding(path, 1, f"include guard is not {wanted}"))


def check_text(path, text, findings):
    if matches(path, TEXT_EXEMPT):
        return
    for number, line in enumerate(text.splitlines(), 1):
        found = UNFINISHED.search(line)
        if found:
            findings.append(Finding(path, number, f"{found.group(0)}: unfinished"))


def check_tests(path, text, findings):
    if layer_of(path, ["tests", "integration"]) is None or matches(path, TEXT_EXEMPT):
        return
    for number, line in enumerate(text.splitlines(), 1):
        found = SLEEPS.search(line)
        if found:
            findings.append(Finding(path, number,
                                    f"{found.group(0)}: wait for a condition instead"))
        found = SKIPPED.search(line)
        if found:
            findings.append(Finding(path, number, f"{found.group(0)}: a test that "
                                    "does not run"))


def read(root, path):
    try:
        with open(os.path.join(root, path), encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError:
        return None
    except FileNotFoundError:
        return None


def check_file(root, path):
    findings = []
    text = read(root, path)
    if text is None:
        return findings
    check_text(path, text, findings)
    check_tests(path, text, findings)
    if path.endswith(CODE):
        code = without_comments(text)
        header = read(root, path[:-3] + ".h") if path.endswith(".cc") else None
        check_includes(path, text, findings)
        check_world(path, text, code, findings)
        check_unordered(path, code, without_comments(header or ""), findings)
        check_guard(path, text, findings)
    lines = text.count("\n")
    if lines > LINES_MAX and path.endswith(CODE + (".py", ".md", ".proto")):
        findings.append(Finding(path, lines, f"{lines} lines; is it still one idea?",
                                warning=True))
    return findings


def tree_files(root):
    """Files that git tracks or would add; every file where there is no git."""
    try:
        listed = subprocess.run(
            ["git", "-C", root, "ls-files", "-z", "--cached", "--others",
             "--exclude-standard"], check=True, capture_output=True).stdout
        return sorted(name for name in listed.decode().split("\0") if name)
    except (subprocess.CalledProcessError, FileNotFoundError):
        return sorted(
            os.path.relpath(os.path.join(folder, name), root)
            for folder, _, names in os.walk(root) for name in names)


def check_tree(root):
    findings = []
    for path in tree_files(root):
        findings += check_file(root, path)
    return findings


def main(arguments):
    if len(arguments) > 2:
        print(__doc__, file=sys.stderr)
        return 2
    root = arguments[1] if len(arguments) == 2 else os.path.dirname(
        os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    findings = check_tree(root)
    for finding in findings:
        print(finding)
    errors = sum(not finding.warning for finding in findings)
    print(f"tree: {len(tree_files(root))} files, {errors} errors, "
          f"{len(findings) - errors} warnings")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
