// The addresses of its netdev that a vdevice may use.
//
// A tenant that may change addresses in its namespace could take a neighbour's address while the
// neighbour is down, and receive the neighbour's connections. So the operator can name prefixes for
// a vdevice. Without prefixes, a vdevice in a fabric of several tenants may use only the addresses
// that its netdev had when it was created. In a fabric of one tenant there is no limit, because the
// tenant could deceive only itself. The parent may allow fewer (GidRules).
#include <algorithm>
#include <iterator>

#include "gid/interface.h"
#include "vrdmad/control/daemon_record.h"

namespace vrdma::vrdmad {

namespace {

gid::Interface to_interface(const netns::Link& link) {
  gid::Interface interface;
  interface.mac = link.mac;
  interface.loopback = link.loopback;
  interface.addresses = link.addresses;
  return interface;
}

// fe80::/64 with an EUI-64, the first GID of a table. Only a MAC yields such an address.
bool is_default_gid(const verbs::Gid& gid) {
  return gid.bytes[0] == 0xfe && gid.bytes[1] == 0x80 && gid.bytes[11] == 0xff &&
         gid.bytes[12] == 0xfe;
}

}  // namespace

std::vector<verbs::Gid> all_gids(const netns::Link& link) {
  return gid::derive_gids(to_interface(link)).gids;
}

// By vdevices of several tenants, lost ones and one being created included.
bool Daemon::is_shared(const std::string& fabric) const {
  const bool joins = joining_ != nullptr && joining_->fabric == fabric;
  return directory_.is_shared(fabric, joins ? joining_->tenant : std::string());
}

// Empty: it may use all addresses of its netdev.
std::vector<gid::Prefix> Daemon::prefixes_of(const Record& record) const {
  if (!record.prefixes.empty() || !is_shared(record.fabric)) return record.prefixes;
  std::vector<gid::Prefix> own;
  for (const auto& address : record.first_addresses) own.push_back({address, 128});
  // A netdev without addresses is limited to none.
  if (own.empty()) own.push_back({verbs::Gid::unspecified(false), 128});
  return own;
}

gid::Interface Daemon::interface_of(const Record& record) const {
  gid::Interface interface = to_interface(record.link);
  if (const auto& rules = record.share.gids.prefixes; !rules.empty())
    interface = gid::limited(interface, rules,
                             interface.mac ? gid::link_local(*interface.mac) : verbs::Gid());
  const auto prefixes = prefixes_of(record);
  if (prefixes.empty()) return interface;
  const auto& first = record.first_addresses;
  return gid::limited(
      interface, prefixes,
      !first.empty() && is_default_gid(first.front()) ? first.front() : verbs::Gid());
}

size_t Daemon::room_of(const Record& record) {
  return std::min(gid::room_of(record.layout), record.share.gids.room);
}

// Counts each address once while the netdev has it.
void Daemon::count_ignored(Record& record) {
  const auto allowed = gid::derive_gids(interface_of(record)).gids;
  std::set<verbs::Gid> ignored;
  for (const auto& gid : all_gids(record.link))
    if (std::find(allowed.begin(), allowed.end(), gid) == allowed.end()) ignored.insert(gid);
  for (const auto& gid : ignored)
    if (!record.ignored.contains(gid)) ++record.ignored_so_far;
  record.ignored = std::move(ignored);
}

// Affects the members without prefixes, and them only when the fabric begins or ceases to be
// shared; otherwise each of a hundred containers would cost a hundred times as much.
void Daemon::members_changed(const std::string& fabric) {
  const bool shared = is_shared(fabric);
  for (const uint64_t id : directory_.in_fabric(fabric)) {
    const Record* const record = find(id);
    if (record == nullptr || !record->prefixes.empty() || record->applied_shared == shared)
      continue;
    apply_again(id,
                shared ? "its fabric has several tenants now" : "its fabric has one tenant now");
  }
}

}  // namespace vrdma::vrdmad
