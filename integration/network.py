"""Hosts of their own for nodes: network namespaces on bridges.

Everything is made inside namespaces that end with the test process, whatever
ends it; nothing of the machine's own network is touched. Each host has two
interfaces: one to the peer network (10.77.0.0/24), which the test cuts, and one
to the client network (10.78.0.0/24), over which it always reaches every node.
"""

import os
import subprocess
import sys

_INSIDE = "RINGKV_TEST_NETWORK"


def enter():
    """Runs this program again in a network of its own; returns inside it."""
    if os.environ.get(_INSIDE):
        return
    command = ["unshare", "--net", "--mount"]
    if os.geteuid() != 0:
        command.append("--map-root-user")
    os.environ[_INSIDE] = "1"
    inner = "mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && exec \"$@\""
    os.execvp(command[0], [*command, "sh", "-c", inner, "sh", sys.executable, *sys.argv])


def ip(*arguments):
    subprocess.run(["ip", *map(str, arguments)], check=True, capture_output=True, text=True)


class Network:
    """Hosts 1 to n, in two halves that can be cut from each other."""

    def __init__(self, count, left):
        """Hosts numbered in `left` are on one side, all others on the other."""
        self.left = set(left)
        ip("link", "set", "lo", "up")
        for bridge in ("left", "right", "clients"):
            ip("link", "add", bridge, "type", "bridge")
            ip("link", "set", bridge, "up")
        ip("addr", "add", "10.78.0.254/24", "dev", "clients")
        ip("link", "add", "bond-l", "type", "veth", "peer", "name", "bond-r")
        for end, bridge in (("bond-l", "left"), ("bond-r", "right")):
            ip("link", "set", end, "master", bridge, "up")
        for host in range(1, count + 1):
            self._add_host(host)

    def _add_host(self, host):
        ip("netns", "add", self.namespace(host))
        for near, far, bridge, net in (
                (f"peer{host}", "peer", self._side(host), "10.77.0"),
                (f"client{host}", "client", "clients", "10.78.0")):
            ip("link", "add", near, "type", "veth", "peer", "name", far,
               "netns", self.namespace(host))
            ip("link", "set", near, "master", bridge, "up")
            inside = ("-n", self.namespace(host))
            ip(*inside, "addr", "add", f"{net}.{host}/24", "dev", far)
            ip(*inside, "link", "set", far, "up")
            ip(*inside, "link", "set", "lo", "up")

    def _side(self, host):
        return "left" if host in self.left else "right"

    def namespace(self, host):
        return f"host{host}"

    def addresses(self, host):
        """Client, peer and HTTP address of the node on this host."""
        return (f"10.78.0.{host}:7700", f"10.77.0.{host}:7800", f"10.78.0.{host}:7900")

    def cut(self):
        """From now on, packets between the halves vanish."""
        ip("link", "set", "bond-l", "down")

    def heal(self):
        ip("link", "set", "bond-l", "up")

    def drop(self, host):
        """From now on, packets between this host and its peers vanish."""
        ip("link", "set", f"peer{host}", "nomaster")

    def restore(self, host):
        ip("link", "set", f"peer{host}", "master", self._side(host))
