"""Installs RingKV and builds the README's C++ program against the installed package."""

import os
import re
import unittest

import harness
from harness import run

CMAKE_LISTS = """\
cmake_minimum_required(VERSION 3.25)
project(greeting CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(ringkv 0.1 REQUIRED)
add_executable(greeting greeting.cc)
target_link_libraries(greeting PRIVATE ringkv::client)
"""


class InstallTest(harness.TestCase):

    def must(self, command, **options):
        result = run(command, seconds=240, **options)
        self.assertEqual(0, result.returncode, result.stdout.decode() + result.stderr.decode())
        return result.stdout

    def test_program_of_the_readme_builds_and_runs(self):
        prefix = os.path.join(self.folder, "prefix")
        self.must(["cmake", "--install", harness.BUILD, "--prefix", prefix])
        for program in ("kvnode", "kvctl", "kvbench", "kvsim"):
            path = os.path.join(prefix, "bin", program)
            self.assertEqual(0, run([path, "--help"]).returncode, path)
        protos = os.path.join(prefix, "share", "ringkv", "proto", "ringkv")
        self.assertEqual(["v1"], os.listdir(protos), "the public messages only")
        self.assertIn("kv.proto", os.listdir(os.path.join(protos, "v1")))

        with open(os.path.join(harness.ROOT, "README.md"), encoding="utf-8") as file:
            source = re.search(r"```cpp\n(.*?)```", file.read(), re.S).group(1)
        project = os.path.join(self.folder, "greeting")
        os.mkdir(project)
        node = self.single_node()
        for name, text in (("CMakeLists.txt", CMAKE_LISTS), ("greeting.cc", source.replace(
                "127.0.0.1:7700", node.client_address))):
            with open(os.path.join(project, name), "w", encoding="utf-8") as file:
                file.write(text)
        build = os.path.join(project, "build")
        self.must(["cmake", "-G", "Ninja", "-S", project, "-B", build,
                   f"-DCMAKE_PREFIX_PATH={prefix}"])
        self.must(["cmake", "--build", build])
        self.assertEqual(b"hello\n", self.must([os.path.join(build, "greeting")]))

    def test_installed_protos_compile_for_another_language(self):
        prefix = os.path.join(self.folder, "prefix")
        self.must(["cmake", "--install", harness.BUILD, "--prefix", prefix])
        protos = os.path.join(prefix, "share", "ringkv", "proto")
        out = os.path.join(self.folder, "out")
        os.mkdir(out)
        self.must(["protoc", "-I", protos, f"--java_out={out}", "ringkv/v1/kv.proto",
                   "ringkv/v1/admin.proto", "ringkv/v1/ring.proto"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
