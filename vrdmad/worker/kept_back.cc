#include "vrdmad/worker/kept_back.h"

#include <algorithm>
#include <utility>

namespace vrdma::vrdmad {

SessionTies ties_of(const SessionImage& image, uint64_t vdevice,
                    const std::function<uint64_t(const verbs::Gid&)>& vdevice_of) {
  SessionTies ties;
  ties.vdevice = vdevice;
  ties.shares = !image.exporter.empty() || !image.imported_pds.empty() ||
                !image.imported_mrs.empty() || !image.xrcds.empty();
  if (const auto made = image.served.find(Stored::kQp); made != image.served.end())
    for (const auto& [handle, qp] : made->second)
      ties.has.emplace(vdevice, qp.made.reply.create_qp.qpn);
  for (const auto& [handle, target] : image.targets) ties.has.emplace(vdevice, target.made.qpn);
  for (const auto& [handle, state] : image.qp_states) {
    const QpRecord& record = state.made.record;
    if (record.linked_out == 0 && record.linked_in == 0 && record.maps_peer == 0) continue;
    if (const uint64_t whose = vdevice_of(verbs::Gid::of(record.attributes.av.dgid)); whose != 0)
      ties.peers.emplace(whose, record.attributes.dest_qpn);
  }
  return ties;
}

std::vector<bool> kept_back(const std::vector<SessionTies>& sessions, std::set<uint64_t> awaiting,
                            const std::function<bool(const QpName&)>& lives) {
  std::set<QpName> here;
  for (const SessionTies& session : sessions) here.insert(session.has.begin(), session.has.end());
  std::vector<bool> kept(sessions.size());
  const auto is_missing = [&](const QpName& peer) {
    return awaiting.contains(peer.first) && !here.contains(peer) && !lives(peer);
  };
  // A session that is kept back keeps others back, also those before it.
  for (bool changed = true; std::exchange(changed, false);) {
    for (size_t i = 0; i < sessions.size(); ++i) {
      const SessionTies& session = sessions[i];
      if (kept[i] || !((session.shares && awaiting.contains(session.vdevice)) ||
                       std::any_of(session.peers.begin(), session.peers.end(), is_missing)))
        continue;
      kept[i] = changed = true;
      awaiting.insert(session.vdevice);
      for (const QpName& qp : session.has) here.erase(qp);
    }
  }
  return kept;
}

}  // namespace vrdma::vrdmad
