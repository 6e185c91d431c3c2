// The planted bugs, each with what it does. The code that holds them names them
// through base/planted.h.

#ifndef RINGKV_TESTS_SIM_PLANTED_BUGS_H_
#define RINGKV_TESTS_SIM_PLANTED_BUGS_H_

namespace ringkv::sim {

struct PlantedBug {
  const char* name;
  const char* what;
};

inline constexpr PlantedBug kPlantedBugs[] = {
    {"hint-not-stored", "a stand-in acknowledges a hint that it did not store"},
    {"merge-drops-cover", "a merge keeps values that the other side replaced"},
    {"actor-continued-after-restart",
     "an actor goes on from an `own` of an earlier run"},
    {"actor-from-clock", "an actor goes on from the clock instead of `own`"},
    {"stand-in-counted-twice",
     "a node that holds both a replica and a hint counts twice towards W"},
    {"stand-in-at-strict", "hints count towards W at strict"},
    {"repair-writes-older", "read repair sends what the stale replica had"},
    {"strict-answer-before-write-back",
     "a strict read answers before enough replicas hold what it shows"},
    {"delta-sent", "a put sends its value with a bare clock"},
    {"put-context-covers-unseen",
     "a put answers a context that covers siblings it did not show"},
    {"fallback-nothing-is-answer",
     "\"nothing\" from fallbacks alone counts as an answer"},
    {"context-misses-tombstone",
     "a read of a tombstone answers no context for it"},
    {"ack-before-fsync", "a `sync` keyspace acknowledges before its fsync"},
    {"lww-stamp-below-seen",
     "an lww write is stamped without regard to what it saw"},
    {"request-id-other-key",
     "a repeat is recognised by its id alone, whatever the key"},
    {"scan-skips-border", "a scan skips the key at a border of its pages"},
    {"hint-removed-before-ack",
     "a hint is removed when it is sent, not when it is acknowledged"},
    {"turn-overlay-ignored",
     "an operation does not see what the same turn wrote before"},
    {"merge-order", "a merge depends on the order of its sides"},
    {"digest-misses-field", "a digest leaves a field out"},
    {"lww-tie", "equal stamps are decided differently on two nodes"},
    {"hint-lost-at-restart", "hints are not read back at a restart"},
    {"stream-from-any",
     "a new owner streams from any old one, not from its partner"},
    {"barrier-too-small",
     "one acknowledgement in each range counts as the barrier"},
    {"switch-before-streamed",
     "reads go to new owners that have not received everything"},
    {"departed-comes-back",
     "a node that left the ring is neither refused nor told"},
    {"hints-stay-with-old-owner",
     "a hint for a node that loses the key goes to it and nobody else"},
    {"cleanup-while-pending",
     "a node deletes what it is about to hold, or still holds"},
    {"hint-of-loser-dropped",
     "a hint for a node that loses the key is thrown away"},
    {"pending-gets-no-writes",
     "writes go to the old owners alone until the switch"},
    {"damaged-chunk-taken", "the checksum of a chunk is not looked at"},
};

// Those that no seed has shown yet: each needs a rare fault in one of the short
// phases of a change of the ring. Unit tests of a build with planted bugs, or
// of the pure functions, show them.
inline constexpr PlantedBug kPlantedUnseen[] = {
    {"old-ring-accepted", "a replica serves messages of any older ring"},
    {"put-kept-over-refresh", "a put goes on by the ring that it began with"},
    {"leaver-goes-with-hints",
     "a node leaves with the hints that it still holds"},
    {"transfers-before-barrier",
     "ranges are streamed before every quorum knows of the change"},
    {"hint-needs-one-holder",
     "a hint for a node that loses the key goes once one other holds it"},
    {"tombstones-not-streamed", "tombstones stay where they are"},
    {"proposer-ignores-accepted",
     "a proposer puts its own ring in the place of an accepted one"},
    {"finish-before-barrier",
     "a topology change ends while quorums of its older epoch can be formed"},
    {"joiner-votes", "nodes that still join count as voters"},
    {"left-over-not-wiped",
     "a range that a node gains keeps what was left there from before"},
    {"progress-kept-over-abort",
     "a transfer goes on from where an aborted operation came to"},
    {"too-few-copies-after-change",
     "what was acknowledged by an older, smaller W is not merged into enough"},
    {"acceptor-forgets", "a voter forgets at a restart what it promised"},
    {"one-set-is-enough",
     "a put is acknowledged by W of the replicas before a topology change "
     "alone"},
    {"strict-write-back-old-set-only",
     "a strict read looks at one of the two sets that writes go to"},
    {"stream-before-adoption",
     "ranges are streamed while writes may still go to the old set alone"},
    {"joiner-hint-counts",
     "a hint that a joining node holds counts for the old owners"},
};

}  // namespace ringkv::sim

#endif  // RINGKV_TESTS_SIM_PLANTED_BUGS_H_
