#include "vrdmad/worker/messages_codec.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "core/ipc/messages.h"
#include "core/wire/roce.h"
#include "provisioning/permission.h"

namespace vrdma::vrdmad {

namespace {

using provisioning::kKindCount;

// Both go over the fields of a message in the same order (fields(), below). After a failure a
// Reader gives zeros.
class Writer {
 public:
  template <class T>
  void number(T value) {
    using Bits = std::make_unsigned_t<T>;
    for (size_t i = 0; i < sizeof(T); ++i)
      bytes.push_back(
          static_cast<uint8_t>(static_cast<uint64_t>(static_cast<Bits>(value)) >> 8 * i));
  }
  // At most `most`.
  template <class T>
  void count(const std::vector<T>& list, size_t most) {
    require(list.size() <= most);
    number(static_cast<uint32_t>(list.size()));
  }
  void raw(const uint8_t* from, size_t size) { bytes.insert(bytes.end(), from, from + size); }
  void text(const std::string& value, size_t most) {
    require(value.size() <= most);
    number(static_cast<uint16_t>(value.size()));
    bytes.insert(bytes.end(), value.begin(), value.end());
  }
  void require(bool holds) { ok = ok && holds; }

  std::vector<uint8_t> bytes;
  bool ok = true;
};

class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : rest_(bytes) {}
  template <class T>
  void number(T& value) {
    uint64_t bits = 0;
    const auto from = take(sizeof(T));
    for (size_t i = 0; i < from.size(); ++i) bits |= uint64_t{from[i]} << 8 * i;
    value = static_cast<T>(bits);
  }
  // Elements of at least one byte each: no more are made than there are bytes.
  template <class T>
  void count(std::vector<T>& list, size_t most) {
    uint32_t size = 0;
    number(size);
    require(size <= most && size <= rest_.size());
    list.resize(ok ? size : 0);
  }
  void raw(uint8_t* to, size_t size) { std::ranges::copy(take(size), to); }
  void text(std::string& value, size_t most) {
    uint16_t size = 0;
    number(size);
    require(size <= most);
    const auto from = take(ok ? size : 0);
    value.assign(from.begin(), from.end());
  }
  void require(bool holds) { ok = ok && holds; }
  [[nodiscard]] bool over() const { return ok && rest_.empty(); }

  bool ok = true;

 private:
  std::span<const uint8_t> take(size_t size) {
    require(size <= rest_.size());
    if (!ok) return {};
    const auto taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }
  std::span<const uint8_t> rest_;
};

template <class A>
void flag(A& at, bool& value) {
  auto byte = static_cast<uint8_t>(value ? 1 : 0);
  at.number(byte);
  at.require(byte <= 1);
  value = byte == 1;
}

template <class A>
void fields(A& at, PortStatus& status) {
  flag(at, status.active);
  at.number(status.mtu);
  at.number(status.ifindex);
  bool has_mac = status.mac.has_value();
  flag(at, has_mac);
  if (!has_mac) return status.mac.reset();
  auto mac = status.mac.value_or(std::array<uint8_t, 6>{});
  at.raw(mac.data(), mac.size());
  status.mac = mac;
}

template <class A>
void fields(A& at, std::vector<Limit>& limits) {
  at.count(limits, kKindCount);
  for (Limit& one : limits) {
    auto kind = static_cast<uint8_t>(one.kind);
    at.number(kind);
    at.require(kind < kKindCount);
    one.kind = static_cast<provisioning::Kind>(kind);
    at.number(one.limit);
  }
}

template <class A>
void fields(A& at, verbs::Capabilities& all) {
  for (uint32_t* field : {&all.stated, &all.vendor_id, &all.vendor_part_id, &all.hardware_version,
                          &all.flags, &all.atomics})
    at.number(*field);
  for (uint64_t* field : {&all.page_sizes, &all.max_message, &all.max_device_memory})
    at.number(*field);
  for (uint32_t* field :
       {&all.max_sge, &all.max_inline, &all.max_rd_atomic, &all.max_mcast_groups,
        &all.max_mcast_attach, &all.ack_delay, &all.odp, &all.odp_rc, &all.odp_uc, &all.odp_ud,
        &all.odp_xrc, &all.port_flags, &all.width, &all.speed, &all.max_mtu, &all.reserved})
    at.number(*field);
}

template <class A>
void fields(A& at, BudgetName& budget) {
  at.number(budget.number);
  at.text(budget.whose, kMostText);
}

template <class A>
void fields(A& at, Begin& message) {
  at.number(message.epoch);
  at.number(message.grace_ms);
  at.number(message.slot);
  flag(at, message.clients);
}

template <class A>
void fields(A& at, verbs::Gid& gid) {
  at.raw(gid.bytes.data(), gid.bytes.size());
}

template <class A>
void fields(A& at, gid::Prefix& prefix) {
  fields(at, prefix.address);
  at.number(prefix.bits);
  at.require(prefix.bits <= 8 * sizeof prefix.address.bytes);
}

template <class A>
void fields(A& at, Ways& ways) {
  flag(at, ways.network);
  flag(at, ways.wire);
  at.count(ways.peers, Ways::kMostPeers);
  for (gid::Prefix& prefix : ways.peers) fields(at, prefix);
}

template <class A>
void fields(A& at, AddVdevice& message) {
  at.number(message.vdevice);
  for (std::string* name : {&message.name, &message.label, &message.tenant, &message.fabric})
    at.text(*name, name == &message.label ? kMostText : kMostName);
  at.number(message.netns);
  at.number(message.node_guid);
  at.number(message.permissions);
  at.require(provisioning::Permissions::of_bits(message.permissions).has_value());
  flag(at, message.limited);
  flag(at, message.no_direct);
  fields(at, message.ways);
  fields(at, message.capabilities);
  fields(at, message.limits);
  fields(at, message.tenant_budget);
  fields(at, message.parent_budget);
}

template <class A>
void fields(A& at, RemoveVdevice& message) {
  at.number(message.vdevice);
  at.number(message.ticket);
}

template <class A>
void fields(A& at, FileId& file) {
  at.number(file.device);
  at.number(file.inode);
}

template <class A>
void fields(A& at, Known& program) {
  at.number(program.entry);
  rdma::Peer& peer = program.peer;
  at.number(peer.pid);
  for (uint32_t* field : {&peer.secure, &peer.dumpable, &peer.reserved}) at.number(*field);
  for (uint64_t* field : {&peer.start_time, &peer.program, &peer.permitted, &peer.netns_cookie})
    at.number(*field);
  for (rdma::Peer::Ids* ids : {&peer.uids, &peer.gids})
    for (uint32_t& id : *ids) at.number(id);
  for (rdma::Peer::File* file : {&peer.executable, &peer.user_namespace, &peer.network_namespace}) {
    at.number(file->device);
    at.number(file->inode);
  }
}

template <class A>
void fields(A& at, NewConnection& message) {
  at.number(message.vdevice);
  at.number(message.number);
  fields(at, message.program);
}

template <class A>
void fields(A& at, KitValues& kit) {
  at.number(kit.session);
  fields(at, kit.arena);
  fields(at, kit.memory);
  at.text(kit.cgroup, kMostText);
  at.number(kit.has);
  at.count(kit.shown, ipc::kMaxFds);
  for (ShownFile& one : kit.shown) {
    fields(at, one.id);
    at.number(one.size);
  }
}

template <class A>
void fields(A& at, Kit& message) {
  at.number(message.connection);
  at.number(message.vdevice);
  at.number(message.used_ns);
  at.number(message.error);
  at.require(message.error >= 0);
  fields(at, message.kit);
}

template <class A>
void fields(A& at, AdoptSession& message) {
  at.number(message.vdevice);
  at.number(message.number);
  fields(at, message.program);
  fields(at, message.kit);
  at.number(message.epoch);
}

template <class A>
void fields(A& at, AdoptChannels& message) {
  at.number(message.number);
  at.count(message.handles, AdoptChannels::kMost);
  for (uint32_t& handle : message.handles) at.number(handle);
}

template <class A>
void fields(A&, TakeOver&) {}

template <class A>
void fields(A& at, Await& message) {
  at.number(message.vdevice);
  at.number(message.used_ns);
  flag(at, message.others);
}

template <class A>
void fields(A& at, RoceSocket& message) {
  at.number(message.vdevice);
  fields(at, message.address);
  at.number(message.error);
  at.require(message.error >= 0);
  at.number(message.sources);
  at.number(message.has_sources);
  at.require(message.sources <= verbs::kMostSourcePorts &&
             message.has_sources >> message.sources == 0);
}

template <class A>
void fields(A& at, WantRoceSocket& message) {
  at.number(message.vdevice);
  fields(at, message.address);
}

template <class A>
void fields(A& at, LeaveGroup& message) {
  at.number(message.vdevice);
  fields(at, message.group);
}

template <class A>
void fields(A& at, Refused& message) {
  at.number(message.vdevice);
  at.number(message.pid);
  auto why = static_cast<uint8_t>(message.why);
  at.number(why);
  at.require(why <= static_cast<uint8_t>(Refused::Why::kProtocol));
  message.why = static_cast<Refused::Why>(why);
  auto kind = static_cast<uint8_t>(message.kind);
  at.number(kind);
  at.require(kind < kKindCount);
  message.kind = static_cast<provisioning::Kind>(kind);
  at.number(message.count);
}

template <class A>
void fields(A& at, WantKit& message) {
  at.number(message.connection);
  fields(at, message.shown);
}

template <class A>
void fields(A& at, Accepted& message) {
  at.number(message.connection);
}

template <class A>
void fields(A& at, Ended& message) {
  at.number(message.connection);
}

template <class A>
void fields(A& at, WantRates& message) {
  at.number(message.budget);
}

template <class A>
void fields(A& at, SetPort& message) {
  at.number(message.vdevice);
  fields(at, message.status);
}

template <class A>
void fields(A& at, SetGids& message) {
  at.number(message.vdevice);
  at.count(message.gids, kMostGids);
  for (verbs::Gid& gid : message.gids) fields(at, gid);
}

template <class A>
void fields(A& at, Collect& message) {
  at.number(message.vdevice);
  at.number(message.ticket);
}

template <class A>
void fields(A& at, CheckLimits& message) {
  at.number(message.vdevice);
  at.number(message.ticket);
  fields(at, message.limits);
}

template <class A>
void fields(A& at, SetLimits& message) {
  at.number(message.vdevice);
  at.number(message.ticket);
  fields(at, message.limits);
  flag(at, message.limited);
}

template <class A>
void fields(A& at, AskCgroups& message) {
  at.number(message.vdevice);
  at.number(message.ticket);
  at.text(message.after, kMostText);
}

template <class A>
void fields(A& at, AskQueuePairs& message) {
  at.number(message.vdevice);
  at.number(message.ticket);
  at.number(message.after);
}

template <class A>
void fields(A& at, AskExports& message) {
  at.number(message.vdevice);
  at.number(message.ticket);
  at.number(message.after);
}

template <class A>
void fields(A& at, ParkSession& message) {
  at.number(message.vdevice);
  at.number(message.connection);
  at.number(message.ticket);
  auto step = static_cast<uint8_t>(message.step);
  at.number(step);
  at.require(step <= static_cast<uint8_t>(ParkSession::Step::kEnd));
  message.step = static_cast<ParkSession::Step>(step);
}

template <class A>
void fields(A& at, AttachSession& message) {
  fields(at, message.session);
  at.number(message.ticket);
  fields(at, message.bells);
  at.number(message.doorbell);
  at.number(message.events);
  at.number(message.epoch);
}

template <class A>
void fields(A& at, SetWays& message) {
  at.number(message.vdevice);
  fields(at, message.ways);
}

// The sentence goes to an operator's terminal.
bool is_plain(const std::string& text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) >= 0x20; });
}

template <class A>
void fields(A& at, Done& message) {
  at.number(message.ticket);
  at.number(message.error);
  at.require(message.error >= 0);
  at.text(message.reason, kMostText);
  at.require(is_plain(message.reason));
}

template <class A>
void fields(A& at, Say& message) {
  auto level = static_cast<uint8_t>(message.level);
  at.number(level);
  at.require(level <= static_cast<uint8_t>(base::LogLevel::kWarning));
  message.level = static_cast<base::LogLevel>(level);
  at.text(message.sentence, kMostText);
  at.require(is_plain(message.sentence));
}

template <class A>
void fields(A& at, Crashed& message) {
  at.number(message.signal);
  at.number(message.session);
}

template <class A>
void fields(A& at, CgroupUse& message) {
  at.number(message.ticket);
  at.count(message.groups, CgroupUse::kMost);
  for (auto& group : message.groups) {
    at.text(group.path, kMostText);
    fields(at, group.used);
  }
  flag(at, message.more);
}

template <class A>
void fields(A& at, QueuePairs::Row& row) {
  const auto enumerator = [&](auto& value, auto last) {
    auto byte = static_cast<uint8_t>(value);
    at.number(byte);
    at.require(byte <= static_cast<uint8_t>(last));
    value = static_cast<std::remove_reference_t<decltype(value)>>(byte);
  };
  at.number(row.qpn);
  at.number(row.pid);
  enumerator(row.type, verbs::QpType::kXrcTarget);
  enumerator(row.state, verbs::QpState::kErr);
  enumerator(row.transport, QueuePairs::Transport::kRaw);
  enumerator(row.because, rdma::NotDirect::kEarlier);
  at.raw(row.local.bytes.data(), row.local.bytes.size());
  at.raw(row.remote.bytes.data(), row.remote.bytes.size());
  at.number(row.remote_qpn);
  for (uint32_t* number :
       {&row.network.round_trip_us, &row.network.window, &row.network.unanswered})
    at.number(*number);
  for (uint64_t* number :
       {&row.network.rate, &row.network.losses.packet_seq_err,
        &row.network.losses.implied_nak_seq_err, &row.network.losses.local_ack_timeout_err,
        &row.network.losses.rnr_nak_retry_err, &row.network.losses.retransmitted,
        &row.by_program.requests, &row.by_program.bytes, &row.by_worker.requests,
        &row.by_worker.bytes})
    at.number(*number);
}

// One of several answers to a question.
template <class A, class Page>
void fields_of_page(A& at, Page& message) {
  at.number(message.ticket);
  at.count(message.rows, Page::kMost);
  for (auto& row : message.rows) fields(at, row);
  flag(at, message.more);
}

template <class A>
void fields(A& at, QueuePairs& message) {
  fields_of_page(at, message);
}

template <class A>
void fields(A& at, Exports::Row& row) {
  at.number(row.session);
  at.number(row.pid);
  at.text(row.is.socket, ipc::ExportState::kMostPath);
  flag(at, row.is.has_vmm);
  auto mode = static_cast<uint32_t>(row.is.mode);
  at.number(mode);
  at.require(mode <= static_cast<uint32_t>(ipc::DoorbellMode::kTrap));
  row.is.mode = static_cast<ipc::DoorbellMode>(mode);
  bool has_driver = row.is.driver.has_value();
  flag(at, has_driver);
  uint32_t driver = row.is.driver.value_or(0);
  at.number(driver);
  at.require(has_driver || driver == 0);
  row.is.driver = has_driver ? std::optional(driver) : std::nullopt;
  auto& counts = row.is.counts;
  for (uint64_t* number :
       {&counts.doorbells, &counts.registers, &counts.commands, &counts.interrupts,
        &counts.replaced, &counts.attaches_refused, &counts.commands_refused,
        &counts.doorbells_refused, &counts.requests_refused, &counts.events_lost})
    at.number(*number);
}

template <class A>
void fields(A& at, Exports& message) {
  fields_of_page(at, message);
}

template <class Message>
std::optional<std::vector<uint8_t>> encoded(const Message& message) {
  Writer writer;
  writer.number(static_cast<uint8_t>(message.index()));
  Message copy = message;  // fields() is one function for both ways
  std::visit([&](auto& one) { fields(writer, one); }, copy);
  if (!writer.ok || writer.bytes.size() > kMostMessage) return std::nullopt;
  return std::move(writer.bytes);
}

template <class Message, size_t kIndex = 0>
std::optional<Message> decoded(Reader& reader, size_t index) {
  if constexpr (kIndex < std::variant_size_v<Message>) {
    if (index != kIndex) return decoded<Message, kIndex + 1>(reader, index);
    std::variant_alternative_t<kIndex, Message> one;
    fields(reader, one);
    if (!reader.over()) return std::nullopt;
    return Message(std::move(one));
  }
  return std::nullopt;
}

template <class Message>
std::optional<Message> decoded(std::span<const uint8_t> bytes) {
  if (bytes.size() > kMostMessage) return std::nullopt;
  Reader reader(bytes);
  uint8_t index = 0;
  reader.number(index);
  if (!reader.ok) return std::nullopt;
  return decoded<Message>(reader, index);
}

}  // namespace

std::optional<std::vector<uint8_t>> encode(const ToWorker& message) { return encoded(message); }
std::optional<std::vector<uint8_t>> encode(const ToControl& message) { return encoded(message); }

std::optional<ToWorker> decode_to_worker(std::span<const uint8_t> bytes) {
  return decoded<ToWorker>(bytes);
}
std::optional<ToControl> decode_to_control(std::span<const uint8_t> bytes) {
  return decoded<ToControl>(bytes);
}

}  // namespace vrdma::vrdmad
