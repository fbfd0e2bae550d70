// The bytes of a RoCE v2 packet, to their decoder. What it accepts lies within the bytes, and is
// written again as it was read.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "core/wire/roce.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace wire = vrdma::wire;
  const std::vector<uint8_t> bytes(data, data + size);  // so that a sanitizer knows its end
  const auto packet = wire::decode(bytes);
  if (!packet) return 0;
  uint32_t sum = 0;
  for (uint32_t i = 0; i < packet->payload_length; ++i) sum += packet->payload[i];
  if (packet->payload_length > 0 &&
      (packet->payload < bytes.data() ||
       packet->payload + packet->payload_length + wire::kIcrcBytes > bytes.data() + size))
    std::abort();
  std::vector<uint8_t> again(wire::packet_bytes(*packet));
  const size_t headers = wire::encode(*packet, again.data());
  if (headers > wire::kMaxHeaders + sizeof(wire::ImmDt) || headers > again.size()) std::abort();
  if (packet->payload_length > 0)
    std::memcpy(&again[headers], packet->payload, packet->payload_length);
  const auto reread = wire::decode(again);
  if (!reread || reread->psn != packet->psn || reread->dest_qpn != packet->dest_qpn ||
      reread->operation != packet->operation || reread->va != packet->va ||
      reread->imm != packet->imm || reread->payload_length != packet->payload_length)
    std::abort();
  return sum == 1 ? 0 : 0;
}
