"""Who should hold what: the ring as the nodes say it is, walked by other code than theirs."""

import harness
from ringkv.v1 import kv_pb2


class Shape:
    """Who holds what, in a ring that is not being changed."""

    def __init__(self, node):
        stream = node.kv.WatchRing(kv_pb2.WatchRingRequest(), timeout=10)
        ring = next(iter(stream)).ring
        stream.cancel()
        assert not ring.HasField("operation"), ring.operation
        self.names = {m.number: m.name for m in ring.members}
        keyspace = ring.keyspaces[0]
        self.n, self.w = keyspace.n, keyspace.w
        # Segments are at equal distances.
        self.shift = 64 - (len(ring.owners) - 1).bit_length()
        self.sets = self._replicas(ring)

    def _replicas(self, ring):
        """The replicas of each segment, by the clockwise walk."""
        places = {m.number: (m.location.zone, m.location.rack, m.location.host)
                  for m in ring.members}
        met = []  # owners in the order in which a walk from here meets them
        sets = [None] * len(ring.owners)
        for turn in range(2):
            for i in reversed(range(len(ring.owners))):
                owner = ring.owners[i]
                if not met or met[0] != owner:
                    if owner in met:
                        met.remove(owner)
                    met.insert(0, owner)
                if turn == 1:
                    sets[i] = frozenset(self._walk(met, places))
        return sets

    def _walk(self, met, places):
        taken = []
        # A new zone first, else a new rack, else a new host, else any node.
        for depth in (1, 2, 3, None):
            seen = {places[node][:depth] for node in taken} if depth else set()
            for node in met:
                domain = places[node][:depth] if depth else node
                if len(taken) < self.n and node not in taken and domain not in seen:
                    seen.add(domain)
                    taken.append(node)
        return taken

    def segment(self, token):
        return token >> self.shift

    def share(self, number):
        return sum(number in replicas for replicas in self.sets) / len(self.sets)


def stored(nodes):
    """({key: token}, [(node, key) that should not be there], number of copies) of keyspace
    1 on the disks of all members, or None if one was busy with its disk."""
    shape = Shape(nodes[0])
    numbers = {name: number for number, name in shape.names.items()}
    keys, wrong, copies = {}, [], 0
    for node in nodes:
        here = [numbers[node.name] in replicas for replicas in shape.sets]
        on_disk = harness.stored_keys(node)
        if on_disk is None:
            return None
        wrong += [(node.name, key) for key, token in on_disk.items()
                  if not here[shape.segment(token)]]
        copies += len(on_disk)
        keys.update(on_disk)
    return keys, wrong, copies


def wait_in_place(nodes, count=None, seconds=120):
    """Waits until each key (`count` of them) is on its replicas and nowhere else;
    returns {key: token}."""
    last = None

    def in_place():
        nonlocal last
        last = stored(nodes)
        if last is None:
            return False
        keys, wrong, copies = last
        # Nobody has a key that is not his, so whatever is missing shows in the sum.
        return not wrong and copies == Shape(nodes[0]).n * len(keys) and (
            count is None or len(keys) == count)
    harness.wait_until(in_place, seconds, lambda: "keys in place: " + (
        f"{len(last[0])} keys, {last[2]} copies, misplaced {len(last[1])}: {last[1][:5]}"
        if last else "a disk was not read"))
    return last[0]
