// A MAD with its addresses, and the interface to the transport that carries it.
//
// All addresses here are GIDs of one fabric: the same GID in another fabric is a different vdevice.
#pragma once

#include <string>
#include <string_view>

#include "core/verbs/gid.h"
#include "core/wire/mad.h"

namespace vrdma::qp1mux {

// RoCE version 1 (an ethertype, for old adapters and VMs) or 2 (UDP). Answers use the version of
// the request.
enum class RoceVersion : uint8_t { kV1 = 1, kV2 = 2 };

// From queue pair 1 to queue pair 1, with the GSI's Q_Key and the default P_Key. Valid during the
// call; a receiver that needs it longer must copy it.
struct Packet {
  std::string_view fabric;
  verbs::Gid source;
  verbs::Gid destination;
  RoceVersion roce = RoceVersion::kV2;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 64;
  uint32_t flow_label = 0;
  const wire::Mad& mad;
  // It came by a network, where anybody can write any source.
  bool from_network = false;
};

// A Packet that owns its data.
struct KeptPacket {
  std::string fabric;
  verbs::Gid source, destination;
  RoceVersion roce{};
  uint8_t traffic_class = 0, hop_limit = 0;
  uint32_t flow_label = 0;
  wire::Mad mad{};
  bool from_network = false;

  void keep(const Packet& packet) {
    fabric = packet.fabric;
    source = packet.source;
    destination = packet.destination;
    roce = packet.roce;
    traffic_class = packet.traffic_class;
    hop_limit = packet.hop_limit;
    flow_label = packet.flow_label;
    mad = packet.mad;
    from_network = packet.from_network;
  }
  [[nodiscard]] Packet packet() const {
    return {fabric,    source,     destination, roce,        traffic_class,
            hop_limit, flow_label, mad,         from_network};
  }
};

// Carries MADs: the memory of this host (loopback.h), a network, or a physical queue pair 1.
class Wire {
 public:
  virtual ~Wire() = default;
  // May lose, delay, repeat and reorder, as a network does. Must not call the Mux before it has
  // returned. The Mux has checked that the source belongs to the sender.
  virtual void send(const Packet& packet) = 0;
};

}  // namespace vrdma::qp1mux
