// What a peer can answer to the requester of a connection: responses of all kinds, for packets that
// were sent and others. Requests complete in order, at most once, and none after one that failed.
#include <cstdlib>

#include "tests/fuzz/roce_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vrdma;                  // NOLINT(google-build-using-namespace): a fuzz target
  using namespace vrdma::transport::net;  // NOLINT(google-build-using-namespace)
  fuzz::Input input(data, size);
  Attributes attributes = default_attributes();
  const auto how = input.take();
  attributes.mtu = 256u << how % 5;
  attributes.window = 1u + input.take();
  Connection c(attributes);
  c.a.slow = (how & 128) != 0 ? 0.5 : 0;
  c.to_b.arrives = [&](const wire::Packet& packet) {
    if (!wire::length_fits(packet.operation, packet.payload_length, attributes.mtu)) std::abort();
  };
  constexpr size_t kMostPosted = 64;
  size_t posted = 0;
  for (int rounds = 0; !input.empty() && rounds < 500; ++rounds) {
    const auto what = input.take();
    switch (what % 8) {
      case 0:
      case 1: {
        if (posted++ >= kMostPosted) break;
        Request request = write_to(0);
        constexpr verbs::Opcode kAll[] = {verbs::Opcode::kSend,      verbs::Opcode::kSendWithImm,
                                          verbs::Opcode::kRdmaWrite, verbs::Opcode::kRdmaRead,
                                          verbs::Opcode::kFetchAdd,  verbs::Opcode::kAtomicWrite,
                                          verbs::Opcode::kRdmaRead,  verbs::Opcode::kSend};
        request.opcode = kAll[what / 8 % 8];
        request.fence = what / 64 == 3;
        const bool word =
            verbs::is_atomic(request.opcode) || request.opcode == verbs::Opcode::kAtomicWrite;
        c.a.post(request, Blob(word ? 8 : input.take<uint16_t>()));
        break;
      }
      case 2:
        for (int i = 0; i < what / 8 && c.simulation.step(); ++i) {
        }
        break;
      default: {
        const uint32_t oldest = c.a.requester.record().oldest_psn;
        wire::Packet packet = fuzz::take_packet(input, oldest, attributes.mtu);
        if (what % 8 == 3) packet.operation = wire::Operation::kAcknowledge;
        if (what % 8 == 4) packet.syndrome = wire::kNakSequence;
        if (wire::info(packet.operation).family != wire::OperationInfo::Family::kResponse) break;
        c.a.requester.receive(packet, c.simulation.now);
        if (what / 8 % 2 == 0) c.a.pump();
      }
    }
    if (c.a.requester.unanswered() > kSpan / 2) std::abort();
  }
  for (size_t i = 0; i < c.a.completions.size(); ++i) {
    if (c.a.completions[i].number != i) std::abort();
    if (c.a.completions[i].status != verbs::WcStatus::kSuccess && i + 1 < c.a.completions.size())
      std::abort();
  }
  return 0;
}
