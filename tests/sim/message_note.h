// What a message between nodes says, for people.

#ifndef RINGKV_TESTS_SIM_MESSAGE_NOTE_H_
#define RINGKV_TESTS_SIM_MESSAGE_NOTE_H_

#include <cstdint>
#include <string>

#include "membership/ring/ring.h"
#include "server/messages.h"

namespace ringkv::sim {

struct MessageNote {
  // "write default/key-3 [#12 #15] hint for n4": values by the operation that
  // wrote them, members by their number in the ring.
  std::string text;
  std::string key;         // keyspace/key, if the message names it
  uint64_t operation = 0;  // the coordinator's; a reply has its request's
  bool is_reply = false;
};

MessageNote NoteOf(const DataMessage& message, const Ring& ring);

}  // namespace ringkv::sim

#endif  // RINGKV_TESTS_SIM_MESSAGE_NOTE_H_
