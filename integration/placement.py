"""Who should hold what: the ring as the nodes say it is, walked by other code than theirs."""

import collections

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
    """({key: token}, {key: number of copies}, [(node, key) that should not be there]) of
    keyspace 1 on the disks of all members, or None if one was busy with its disk."""
    shape = Shape(nodes[0])
    numbers = {name: number for number, name in shape.names.items()}
    tokens, copies, wrong = {}, collections.Counter(), []
    for node in nodes:
        here = [numbers[node.name] in replicas for replicas in shape.sets]
        on_disk = harness.stored_keys(node)
        if on_disk is None:
            return None
        wrong += [(node.name, key) for key, token in on_disk.items()
                  if not here[shape.segment(token)]]
        copies.update(on_disk.keys())
        tokens.update(on_disk)
    return tokens, copies, wrong


def wait_in_place(nodes, count=None, partly=(), seconds=120):
    """Waits until each key (`count` of them) is on all of its replicas and nowhere else;
    those in `partly` may lack some. Returns {key: token} and {key: number of copies}."""
    state = {}

    def in_place():
        found = stored(nodes)
        if found is None:
            return False
        tokens, copies, wrong = found
        n = Shape(nodes[0]).n
        lacking = [key for key, number in copies.items() if number < n and key not in partly]
        state.update(tokens=tokens, copies=copies, wrong=wrong, lacking=lacking)
        return not wrong and not lacking and count in (None, len(tokens))
    harness.wait_until(in_place, seconds, lambda: (
        f"keys in place: {len(state['tokens'])} there; misplaced {len(state['wrong'])}: "
        f"{state['wrong'][:5]}; lack replicas {len(state['lacking'])}: "
        f"{state['lacking'][:5]}" if state else "a look at the disks"))
    return state["tokens"], state["copies"]
