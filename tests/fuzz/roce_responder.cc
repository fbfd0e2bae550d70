// What a peer can send to the responder of a connection: packets of all kinds in any order. It
// touches no memory but what its keys allow, and answers with packets that can be sent.
#include <cstdlib>

#include "tests/fuzz/roce_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vrdma;                  // NOLINT(google-build-using-namespace): a fuzz target
  using namespace vrdma::transport::net;  // NOLINT(google-build-using-namespace)
  fuzz::Input input(data, size);
  Attributes attributes = default_attributes();
  const auto how = input.take();
  attributes.reliable = how % 4 != 0;
  attributes.keeps_early = (how & 4) != 0;
  attributes.mtu = 256u << (how >> 3) % 5;
  Connection c(attributes);
  c.b.slow = (how & 128) != 0 ? 0.5 : 0;
  c.to_a.arrives = [&](const wire::Packet& packet) {
    if (wire::info(packet.operation).family != wire::OperationInfo::Family::kResponse) std::abort();
    if (!wire::length_fits(packet.operation, packet.payload_length, attributes.mtu)) std::abort();
  };
  while (!input.empty()) {
    switch (const auto what = input.take(); what % 16) {
      case 0:
        c.b.post_receives(what / 16, 100 * input.take());
        break;
      case 1:
        for (int i = 0; i < what / 16 && c.simulation.step(); ++i) {
        }
        break;
      case 2:
        c.b.no_buffers = what / 16 % 2 != 0;
        break;
      case 3:
        c.b.revoked = what / 16 == 0;
        break;
      default: {
        const uint32_t expected = c.b.responder.record().next_psn;
        const wire::Packet packet = fuzz::take_packet(input, expected, attributes.mtu);
        const auto family = wire::info(packet.operation).family;
        if (family == wire::OperationInfo::Family::kNone ||
            family == wire::OperationInfo::Family::kResponse)
          break;
        c.b.responder.receive(packet);
        if (what / 16 % 4 != 0) c.b.pump();
      }
    }
    // READs of 2^31 bytes are permitted to ask, and not to be answered here.
    if (c.to_a.packets > 2000) break;
  }
  if (c.b.responder.record().resources > Responder::kMostResources) std::abort();
  return 0;
}
