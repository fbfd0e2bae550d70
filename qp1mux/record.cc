#include "qp1mux/record.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>

namespace vrdma::qp1mux {

namespace {

constexpr uint8_t kMaxTimeCode = 31;
constexpr uint8_t kMaxRetries = 15;  // 4 bits in a REQ

// Compares the byte: reading a bool with a value other than 0 or 1 is undefined behaviour.
bool is_flag(const bool& flag) {
  uint8_t byte = 0;
  std::memcpy(&byte, &flag, sizeof byte);
  return byte <= 1;
}

bool are_flags(std::initializer_list<const bool*> flags) {
  return std::all_of(flags.begin(), flags.end(), [](const bool* flag) { return is_flag(*flag); });
}

bool is_sound(wire::PortSpace space) {
  switch (space) {
    case wire::PortSpace::kIpoib:
    case wire::PortSpace::kTcp:
    case wire::PortSpace::kUdp:
    case wire::PortSpace::kIb:
      return true;
  }
  return false;
}

bool is_sound(RoceVersion version) {
  return version == RoceVersion::kV1 || version == RoceVersion::kV2;
}

bool is_sound(base::Duration time) {
  return time >= base::Duration::zero() && time <= time_of(kMaxTimeCode);
}

bool is_sound(const ConnectionRecord& record) {
  if (record.state > State::kClosed || record.transport > wire::CmTransport::kExtended ||
      !are_flags({&record.active, &record.datagram, &record.stood, &record.remote}))
    return false;
  if (record.state == State::kClosed) return true;
  const bool has_message = record.sent.header.attribute_id != 0;
  return record.state != State::kIdle && record.max_retries <= kMaxRetries &&
         is_sound(record.path.roce) && is_sound(record.response) && is_sound(record.timewait) &&
         (has_message ? wire::cm_attribute(record.sent.header).has_value()
                      : !is_repeated(record.state));
}

bool is_sound(const PortRequest& request) {
  return is_sound(request.space) &&
         are_flags({&request.reuse, &request.family_only, &request.privileged});
}

}  // namespace

bool is_sound(const CmIdRecord& record) {
  // Checked first, because reading an invalid bool is undefined behaviour.
  if (!are_flags({&record.reuse, &record.family_only, &record.privileged, &record.active,
                  &record.answered, &record.is_bound}))
    return false;
  // A listener holds a port, and listens at all addresses or at one of a device.
  const bool listens = record.state == CmIdState::kListening;
  if (listens && (!record.is_bound ||
                  (!record.local.gid.is_unspecified() && record.route.endpoint == nullptr)))
    return false;
  if (record.state == CmIdState::kResolving && !record.is_bound) return false;
  return record.state <= CmIdState::kResolving && record.service <= CmService::kUd &&
         is_sound(record.space) && is_sound(record.route.roce) &&
         (!record.is_bound || is_sound(record.bound)) && is_sound(record.connection);
}

}  // namespace vrdma::qp1mux
