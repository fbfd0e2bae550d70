#include "vrdmad/worker/parcel.h"

#include <array>
#include <bit>
#include <iterator>
#include <utility>

namespace vrdma::vrdmad {

using base::fail;
using base::Fd;
using base::pass;
using base::Result;

namespace {

// Beside AdoptSession, before the kit.
constexpr size_t kProcessFiles = 3;

// In the order of the bits of KitValues::has.
template <class T>
auto files_of(T& kit) {
  return std::array{&kit.arena,       &kit.bells,        &kit.memory,      &kit.doorbell,
                    &kit.events.read, &kit.events.write, &kit.userfaultfd, &kit.arena_read_only,
                    &kit.anchors,     &kit.journal};
}

KitValues put(SessionKit kit, Beside* beside) {
  KitValues values{kit.session, kit.arena_id, kit.memory_id, std::move(kit.cgroup), 0, {}};
  uint32_t bit = 1;
  for (Fd* const file : files_of(kit)) {
    if (file->valid()) {
      values.has |= bit;
      beside->push_back(std::move(*file));
    }
    bit <<= 1;
  }
  for (SessionKit::Shown& one : kit.shown) {
    values.shown.push_back(one.is);
    beside->push_back(std::move(one.file));
  }
  return values;
}

constexpr size_t kPages = 5;  // beside AddVdevice, in the order of VdeviceParts

template <class T>
Result<void> put(const base::SharedPage<T>& page, Beside* beside) {
  auto file = page.file().duplicate();
  if (!file) return pass(std::move(file).error());
  beside->push_back(std::move(*file));
  return {};
}

template <class T>
Result<void> take(Beside::iterator& next, base::SharedPage<T>* page) {
  auto mapped = base::SharedPage<T>::map(std::move(*next++));
  if (!mapped) return pass(std::move(mapped).error());
  *page = std::move(*mapped);
  return {};
}

// Of each page in turn; the first error.
template <class F>
Result<void> for_each(VdeviceParts& parts, F f) {
  Result<void> done = f(parts.page);
  if (done) done = f(parts.fabric);
  if (done) done = f(parts.qp_numbers);
  if (done) done = f(parts.tenant_budget);
  return done ? f(parts.parent_budget) : done;
}

Known known(const Caller& caller) { return {caller.entry(), caller.peer()}; }

}  // namespace

Result<Parcel> parcel(AddVdevice message, VdeviceParts parts) {
  Beside beside;
  if (auto all = for_each(parts, [&](auto& page) { return put(page, &beside); }); !all)
    return pass(std::move(all).error());
  if (parts.gsi.valid()) beside.push_back(std::move(parts.gsi));
  return Parcel{std::move(message), std::move(beside)};
}

Result<VdeviceParts> parts_of(Beside beside) {
  if (beside.size() != kPages && beside.size() != kPages + 1)
    return fail(EBADMSG, "a vdevice comes with other descriptors than belong to it");
  VdeviceParts parts;
  auto next = beside.begin();
  if (auto all = for_each(parts, [&](auto& page) { return take(next, &page); }); !all)
    return pass(std::move(all).error());
  if (next != beside.end()) parts.gsi = std::move(*next);
  return parts;
}

Parcel parcel(uint64_t vdevice, uint64_t connection, Arrival arrival) {
  Parcel made{NewConnection{vdevice, connection, known(*arrival.caller)}, {}};
  made.beside.push_back(std::move(arrival.socket));
  return made;
}

Parcel parcel(Kit answer, Result<SessionKit> kit) {
  Beside beside;
  if (kit)
    answer.kit = put(std::move(*kit), &beside);
  else
    answer.error = kit.error().code();
  return {std::move(answer), std::move(beside)};
}

std::vector<Parcel> parcels(Furnisher::Adopted session) {
  std::vector<Parcel> all;
  auto& channels = session.kit.channels;
  while (!channels.empty()) {
    AdoptChannels some{session.connection, {}};
    Beside ends;
    while (!channels.empty() && some.handles.size() < AdoptChannels::kMost) {
      auto channel = channels.extract(channels.begin());
      some.handles.push_back(channel.key());
      ends.push_back(std::move(channel.mapped()));
    }
    all.push_back({std::move(some), std::move(ends)});
  }
  Beside beside;
  beside.push_back(std::move(session.opened.memory.memory));
  beside.push_back(std::move(session.opened.memory.maps));
  beside.push_back(std::move(session.opened.pidfd));
  AdoptSession message{
      session.vdevice, session.connection, known(*session.caller), {}, session.epoch};
  message.kit = put(std::move(session.kit), &beside);
  all.push_back({std::move(message), std::move(beside)});
  return all;
}

std::vector<Parcel> parcels(Furnisher::Adopted session, AttachSession message) {
  auto all = parcels(std::move(session));
  message.session = std::move(std::get<AdoptSession>(all.back().message));
  all.back().message = std::move(message);
  return all;
}

Result<SessionKit> kit_of(const KitValues& values, Beside beside) {
  SessionKit kit;
  const auto files = files_of(kit);
  if (values.has >> files.size() != 0 ||
      static_cast<size_t>(std::popcount(values.has)) + values.shown.size() != beside.size())
    return fail(EBADMSG, "a session's kit has other descriptors than control tells");
  auto next = beside.begin();
  for (size_t i = 0; i < files.size(); ++i)
    if ((values.has >> i & 1) != 0) *files[i] = std::move(*next++);
  for (const ShownFile& one : values.shown) kit.shown.push_back({one, std::move(*next++)});
  kit.session = values.session;
  kit.arena_id = values.arena;
  kit.memory_id = values.memory;
  kit.cgroup = values.cgroup;
  return kit;
}

Result<Furnisher::Adopted> session_of(const AdoptSession& message, Broker& broker, Beside beside) {
  if (beside.size() < kProcessFiles)
    return fail(EBADMSG, "a session to take over comes without its process");
  Furnisher::Adopted session{message.number,
                             message.vdevice,
                             broker.borrowed(message.program.entry, message.program.peer),
                             {},
                             {},
                             message.epoch};
  session.opened.memory.memory = std::move(beside[0]);
  session.opened.memory.maps = std::move(beside[1]);
  session.opened.pidfd = std::move(beside[2]);
  beside.erase(beside.begin(), beside.begin() + kProcessFiles);
  auto kit = kit_of(message.kit, std::move(beside));
  if (!kit) return pass(std::move(kit).error());
  session.kit = std::move(*kit);
  return session;
}

}  // namespace vrdma::vrdmad
