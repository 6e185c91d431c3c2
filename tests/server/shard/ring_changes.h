// Changes of the ring of a ShardCluster, and the calls that its tests make.

#ifndef RINGKV_TESTS_SERVER_SHARD_RING_CHANGES_H_
#define RINGKV_TESTS_SERVER_SHARD_RING_CHANGES_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/check.h"
#include "membership/topology/operation.h"
#include "tests/server/shard/shard_cluster.h"

namespace ringkv {

inline RingSpec Started(const ShardCluster& cluster,
                        const TopologyRequest& request) {
  absl::StatusOr<RingSpec> spec =
      StartOperation(request, cluster.ring().spec());
  RINGKV_CHECK(spec.ok());
  return *spec;
}

// A fourth node joins three, and others after it.
inline RingSpec WithJoiner(const ShardCluster& cluster) {
  const uint64_t number = cluster.ring().spec().members.size() + 1;
  Member joiner;
  joiner.id = NodeId{7, number};
  joiner.name = "n" + std::to_string(number);
  joiner.client_address = "127.0.0.1:" + std::to_string(7000 + number);
  joiner.peer_address = "127.0.0.1:" + std::to_string(8000 + number);
  joiner.location.rack = "r" + std::to_string(number);
  joiner.location.host = joiner.name;
  TopologyRequest request;
  request.kind = TopologyKind::kJoin;
  request.joiners.push_back(joiner);
  return Started(cluster, request);
}

inline RingSpec WithQuorums(const ShardCluster& cluster, Quorums quorums) {
  TopologyRequest request;
  request.kind = TopologyKind::kKeyspace;
  request.keyspace = cluster.keyspace().id;
  request.quorums = quorums;
  request.allow_fewer_replicas = true;
  return Started(cluster, request);
}

inline RingSpec WithoutNode(const ShardCluster& cluster, uint32_t node) {
  TopologyRequest request;
  request.kind = TopologyKind::kDecommission;
  request.nodes = {NodeNumber{node}};
  return Started(cluster, request);
}

inline PutCall Blind(const std::string& key, const std::string& value) {
  PutCall put;
  put.key = key;
  put.value = value;
  put.blind = true;
  return put;
}

inline GetCall Get(const std::string& key, Quorum quorum = Quorum::kDefault) {
  GetCall get;
  get.key = key;
  get.quorum = quorum;
  return get;
}

inline std::vector<std::string> Values(const ClientAnswer& answer) {
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  std::vector<std::string> values;
  for (const SiblingAnswer& sibling :
       std::get<GetAnswer>(answer.answer).siblings) {
    values.push_back(sibling.value);
  }
  return values;
}

}  // namespace ringkv

#endif  // RINGKV_TESTS_SERVER_SHARD_RING_CHANGES_H_
