// How a session is parked while its program is written to disk, and goes on in another process.
//
//   kNot --kPark--> kComesToRest --> kParked --kDetach--> kDetached --AttachSession--> kNot
//                        ^------kResume------'
//
// A detached session outlives its vdevice: its peers wait for the process, which may come back with
// another vdevice of the same GIDs. Then its successor is made of its image, like the session of a
// dead daemon, and is linked to the same peers.
//
// A parked session is as it was, but rdma::park() keeps everything away from it, and its requests
// are not read. A detached one has no process: its program may have ended, so neither its death nor
// its socket means anything. Its memory is reached from then on, because its pages leave the arena.
// The session does not notice that it gets other files of the same content: they are mapped where
// the old ones were.
#include <cstring>
#include <utility>

#include "core/rdma/parking.h"
#include "vrdmad/worker/session.h"

namespace vrdma::vrdmad {

using base::fail;
using base::Result;

namespace {

constexpr auto kTimeToRest = std::chrono::seconds(1);
constexpr auto kLook = std::chrono::milliseconds(1);

}  // namespace

void Session::park(ParkSession::Step step, Then then) {
  if (over_) return then(fail(ENOENT, "its session has ended"));
  switch (step) {
    case ParkSession::Step::kPark:
      return begin_to_park(std::move(then));
    case ParkSession::Step::kDetach:
      return then(detach());
    case ParkSession::Step::kResume:
      if (parked_ == Parked::kNot || parked_ == Parked::kDetached)
        return then(fail(EINVAL, "its session is not parked, or is detached"));
      go_on_parked();
      return then({});
    case ParkSession::Step::kEnd:
      end(false);
      return then({});
  }
}

void Session::begin_to_park(Then then) {
  if (journal_ == nullptr) return then(fail(ENOTSUP, "its session is not open, or has no files"));
  if (parked_ != Parked::kNot) return then(fail(EALREADY, "it is parked already"));
  rdma::Context& context = objects_->context();
  if (const std::string obstacle = rdma::parking_obstacle(context); !obstacle.empty())
    return then(fail(EBUSY, obstacle));
  rdma::park(context);
  parked_ = Parked::kComesToRest;
  look_for_rest(loop().now() + kTimeToRest, std::move(then));
}

// No request is being served, and nothing that one of them paused goes on.
bool Session::has_rest() const {
  return !talk_.is_busy() && !ending_ && !objects_->has_pauses() &&
         rdma::is_at_rest(objects_->context());
}

void Session::look_for_rest(base::TimePoint latest, Then then) {
  if (over_) return then(fail(ENOENT, "its session has ended"));
  if (parked_ != Parked::kComesToRest) return;  // it was resumed
  if (has_rest()) {
    resting_ = std::make_shared<int>(0);
    return objects_->when_unused([this, since = std::weak_ptr(resting_), then = std::move(then)] {
      if (since.expired() || parked_ != Parked::kComesToRest) return;
      parked_ = Parked::kParked;
      then({});
    });
  }
  if (loop().now() >= latest) {
    go_on_parked();
    return then(fail(ETIMEDOUT, "it did not come to rest within a second"));
  }
  rest_ =
      loop().after(kLook, [this, latest, then = std::move(then)] { look_for_rest(latest, then); });
}

Result<void> Session::detach() {
  if (parked_ != Parked::kParked) return fail(EINVAL, "its session is not parked");
  journal_->make_reached();
  parked_ = Parked::kDetached;
  death_watch_.reset();
  doorbell_watch_.reset();
  return {};
}

void Session::vdevice_gone() {
  if (objects_ != nullptr && parked_ != Parked::kDetached) objects_->device_gone();
}

void Session::go_on_parked() {
  rest_.reset();
  resting_.reset();
  parked_ = Parked::kNot;
  rdma::resume(objects_->context());
  objects_->scan_doorbells();
  readable_ = talk_.socket().valid();  // of a new process, when it has connected
  host_.runner.activate(this);
}

Result<void> Session::attach(const AttachSession& message, Furnisher::Adopted from) {
  if (over_ || parked_ != Parked::kDetached)
    return fail(EINVAL, "its session does not wait for a process");
  talk_.close();
  talk_.await(from.caller);
  auto process = watch(std::move(from.opened));
  if (!process) return pass(std::move(process).error());
  auto ring = watch(from.kit.doorbell);
  if (!ring) return fail(ENFILE, "watch a doorbell");
  auto attached = objects_->attach(from.kit, from.caller, std::move(*process));
  const auto begun =
      attached ? rdma::begin_epoch(objects_->context(), message.epoch) : std::move(attached);
  if (!begun) {
    end(false);  // it has a part of the new process
    return begun;
  }
  doorbell_watch_ = std::move(*ring);
  doorbell_ = std::move(from.kit.doorbell);
  journal_->attach(from.caller->peer(), message, from.kit);
  go_on_parked();
  return {};
}

// --- its objects ---

void SessionObjects::when_unused(std::function<void()> then) {
  const auto all = rdma::reaches_of(*context_);
  auto left = std::make_shared<size_t>(all.size());
  for (rdma::Reach* const reach : all)
    reach->barrier([this, left, then, alive = std::weak_ptr(alive_)] {
      if (--*left == 0 && !alive.expired()) then();
    });
}

void SessionObjects::make_all_reached() {
  made_reached_.clear();
  rdma::Context& context = *context_;
  context.mws.each([&](const rdma::Mw& mw) {
    if (mw.mr == nullptr || mw.mr->region.way != ipc::Way::kInPlace) return;
    rdma::Region region = *context.key_record.find(mw.key);
    region.way = ipc::Way::kReached;
    context.set_key(mw.key, &region);
  });
  context.mrs.each([&](rdma::Mr& mr) {
    if (mr.region.way != ipc::Way::kInPlace) return;
    mr.region.way = ipc::Way::kReached;
    context.set_key(mr.key, &mr.region);
    made_reached_.push_back(mr.handle);
  });
}

Result<void> SessionObjects::attach(SessionKit& kit, std::shared_ptr<Caller> caller,
                                    std::shared_ptr<rdma::Process> process) {
  auto space = space_of(std::move(kit.memory));
  if (!space) return pass(std::move(space).error());
  process->set_space(std::move(*space));
  rdma::Context& context = *context_;
  auto exchanged =
      rdma::exchange_files(context, {std::move(kit.arena), std::move(kit.arena_read_only),
                                     std::move(kit.bells), std::move(kit.events.write)});
  if (!exchanged) return exchanged;
  arena_id_ = kit.arena_id;
  context.process = std::move(process);
  caller_ = std::move(caller);
  // What the process has closed cannot be told any more.
  for (auto& [handle, write_end] : kit.channels)
    if (rdma::Channel* const channel = context.channels.find(handle))
      channel->write_end = std::move(write_end);
  int error = 0;
  context.mrs.each([&](const rdma::Mr& mr) {
    if (error == 0) error = reach_to_write(mr.region);
  });
  if (error != 0) return fail(error, "open its memory: " + std::string(std::strerror(error)));
  return {};
}

// --- its journal ---

void SessionJournal::make_reached() {
  objects_.make_all_reached();
  for (const uint32_t changed : objects_.made_reached()) keep_region(*context().mrs.find(changed));
}

void SessionJournal::attach(const rdma::Peer& process, const AttachSession& found,
                            const SessionKit& kit) {
  Anchor now = anchors_->anchors().of;
  now.process = process;
  now.arena = kit.arena_id;
  now.memory = kit.memory_id;
  now.bells = found.bells;
  now.doorbell = found.doorbell;
  now.events = found.events;
  now.epoch = found.epoch;
  anchors_->put_anchor(now);
  for (const auto& [handle, write_end] : kit.channels)
    if (const rdma::Channel* const channel = context().channels.find(handle))
      anchors_->put_channel(handle, inode_of(channel->write_end));
  last_ = file_->last();
}

}  // namespace vrdma::vrdmad
