#include "transport/net/progress.h"

#include <cstddef>
#include <cstring>
#include <type_traits>

namespace vrdma::transport::net {

namespace {

using Bytes = std::span<const uint8_t>;

// Bytes that are no value of their type.
bool is_flag(Bytes bytes, size_t at) { return bytes[at] <= 1; }
bool is_incoming(Bytes bytes, size_t at) {
  return bytes[at + offsetof(PeerRequest, opcode)] < verbs::kOpcodeCount &&
         is_flag(bytes, at + offsetof(PeerRequest, solicited));
}

bool is_record(Bytes bytes, size_t at) {
  return is_incoming(bytes, at + offsetof(Responder::Record, message)) &&
         is_flag(bytes, at + offsetof(Responder::Record, open));
}

template <class T>
bool copy(Bytes bytes, T* note) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(static_cast<void*>(note), bytes.data(), sizeof *note);
  return true;
}

}  // namespace

bool decode(Bytes bytes, SentNote* note) {
  return bytes.size() == sizeof *note && copy(bytes, note);
}

bool decode(Bytes bytes, ReceivedNote* note) {
  return bytes.size() == sizeof *note && is_record(bytes, offsetof(ReceivedNote, record)) &&
         copy(bytes, note) && note->record.resources <= Responder::kMostResources;
}

bool decode(Bytes bytes, StepNote* note) {
  return bytes.size() == sizeof *note && is_record(bytes, offsetof(StepNote, then)) &&
         copy(bytes, note) && note->kind <= StepNote::Kind::kChange &&
         note->length <= note->was.size() && note->then.resources <= Responder::kMostResources;
}

bool decode(Bytes bytes, Responder::Resource* resource) {
  return bytes.size() == sizeof *resource &&
         is_incoming(bytes, offsetof(Responder::Resource, request)) && copy(bytes, resource);
}

}  // namespace vrdma::transport::net
