// Which addresses of its netdev a vdevice may have.
//
// Who may change addresses in a namespace could take one that belongs to a neighbour while that is
// away, and programs that look for the neighbour would come to it. So the operator can name
// prefixes for a vdevice; and where none are named, the tenants of a fabric that several use have
// what their netdevs had when the vdevices were made. In its own fabric a tenant deceives nobody
// but itself.
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

// fe80::/64 with an EUI-64, the first of a table: nobody but a MAC makes such an address.
bool is_default_gid(const verbs::Gid& gid) {
  return gid.bytes[0] == 0xfe && gid.bytes[1] == 0x80 && gid.bytes[11] == 0xff &&
         gid.bytes[12] == 0xfe;
}

}  // namespace

std::vector<verbs::Gid> all_gids(const netns::Link& link) {
  return gid::derive_gids(to_interface(link)).gids;
}

// By vdevices of several tenants, of which some may be lost, and one may be in the making.
bool Daemon::is_shared(const std::string& fabric) const {
  const bool joins = joining_ != nullptr && joining_->fabric == fabric;
  return directory_.is_shared(fabric, joins ? joining_->tenant : std::string());
}

// None: it has all addresses of its netdev.
std::vector<gid::Prefix> Daemon::prefixes_of(const Record& record) const {
  if (!record.prefixes.empty() || !is_shared(record.fabric)) return record.prefixes;
  std::vector<gid::Prefix> own;
  for (const auto& address : record.first_addresses) own.push_back({address, 128});
  // No address at all is a limit too.
  if (own.empty()) own.push_back({verbs::Gid::unspecified(false), 128});
  return own;
}

gid::Interface Daemon::interface_of(const Record& record) const {
  const auto prefixes = prefixes_of(record);
  if (prefixes.empty()) return to_interface(record.link);
  const auto& first = record.first_addresses;
  return gid::limited(
      to_interface(record.link), prefixes,
      !first.empty() && is_default_gid(first.front()) ? first.front() : verbs::Gid());
}

// Each address once for as long as the netdev has it.
void Daemon::count_ignored(Record& record) {
  const auto allowed = gid::derive_gids(interface_of(record)).gids;
  std::set<verbs::Gid> ignored;
  for (const auto& gid : all_gids(record.link))
    if (std::find(allowed.begin(), allowed.end(), gid) == allowed.end()) ignored.insert(gid);
  for (const auto& gid : ignored)
    if (!record.ignored.contains(gid)) ++record.ignored_so_far;
  record.ignored = std::move(ignored);
}

// Of those without prefixes.
void Daemon::members_changed(const std::string& fabric) {
  for (const uint64_t id : directory_.in_fabric(fabric)) {
    Record* const record = find(id);
    if (record == nullptr || !record->prefixes.empty()) continue;
    apply(*record);
    store_again(*record);
  }
}

}  // namespace vrdma::vrdmad
