// How a session begins: the process proves who it is, and gets the memory that both sides share; or
// it is taken over with both.
#include <sys/epoll.h>

#include <cstring>

#include "core/base/random.h"
#include "vrdmad/worker/session.h"

namespace vrdma::vrdmad {

using base::fail;
using base::Fd;
using base::pass;
using base::Result;

namespace {

// Without them the session works, but no other worker can take it over.
Result<SessionFiles> files_of(SessionKit& kit) {
  if (!kit.journal.valid() || !kit.anchors.valid()) return fail(ENOENT, "it has no state files");
  return SessionFiles::open(std::move(kit.anchors), std::move(kit.journal));
}

}  // namespace

int Session::probe(Answer* answer) {
  if (vdevice_->gone) return ENODEV;
  ipc::ProbeReply& reply = answer->reply.probe;
  reply.node_guid = vdevice_->device.node_guid;
  vdevice_->device.name.copy(reply.name, sizeof reply.name - 1);
  return 0;
}

int Session::refuse_caller(const base::Error& why) {
  const int error = talk_.refuse(why, name(), vdevice_->counters.unproven);
  if (error == EAGAIN) return error;
  note_refusal(Refused::Why::kIdentity);
  death_watch_.reset();  // while the pidfd that it watches is open
  greeting_.reset();
  return error;
}

int Session::hello(const ipc::HelloRequest& request, Fds fds, Answer* answer) {
  if (objects_ != nullptr) return EISCONN;
  if (vdevice_->gone) return ENODEV;
  if (auto who = talk_.check(); !who) return refuse_caller(who.error());
  if (greeting_ != nullptr)
    return refuse_caller(base::Error(EPERM, "it asked for another challenge"));
  auto greeting = std::make_unique<Greeting>();
  greeting->challenge = base::random64();
  greeting->challenge_addr = request.challenge_addr;
  greeting->cheap_fence = request.cheap_fence != 0;
  if (!fds.empty()) {
    const intake::Verdict* shown = fds.only();
    if (shown == nullptr || shown->passed == 0) return EPERM;
    greeting->shown = std::move(fds);
  }
  answer->reply.challenge.challenge = greeting->challenge;
  greeting_ = std::move(greeting);
  return 0;
}

// The process must still be what it was at the accept when its memory has been opened, and when the
// challenge has been found there.
int Session::prove(Answer* answer) {
  if (objects_ != nullptr) return EISCONN;
  if (greeting_ == nullptr) return ENOTCONN;
  if (vdevice_->gone) return ENODEV;
  auto opened = talk_.open();
  if (!opened) return refuse_caller(opened.error());
  auto process = watch(std::move(*opened));
  if (!process) {
    greeting_.reset();
    return process.error().code();
  }
  greeting_->process = std::move(*process);
  answer->deferred = true;
  greeting_->process->confirm(greeting_->challenge_addr, greeting_->challenge,
                              [this, alive = std::weak_ptr(alive_)](bool found) {
                                if (!alive.expired() && !over_) on_confirmed(found);
                              });
  return 0;
}

void Session::on_confirmed(bool found) {
  if (!found) return answer_proof(fail(EPERM, "its memory does not contain the challenge"));
  WantKit wish{connection_->number(), {}};
  if (const intake::Verdict* shown = greeting_->shown.only())
    wish.shown = {shown->device, shown->inode};
  host_.want_kit(wish, [this, alive = std::weak_ptr(alive_)](Result<SessionKit> kit) {
    if (!alive.expired() && !over_) answer_proof(std::move(kit));
  });
}

// EPERM: it is not the process that it claims to be, or not the owner of the memory that it
// presented.
void Session::answer_proof(Result<SessionKit> kit) {
  const auto watched = greeting_->process;  // its pidfd outlives the watch
  Answer late;
  if (auto who = talk_.check(); !who)
    late.reply.error = refuse_caller(who.error());
  else if (!kit && kit.error().code() == EPERM)
    late.reply.error = refuse_caller(kit.error());
  else
    late.reply.error = open(std::move(kit), &late);
  if (late.reply.error != 0) {
    ++vdevice_->counters.refused;
    death_watch_.reset();
  }
  greeting_.reset();
  send_answer(std::move(late));
  if (talk_.has_failed()) end(true);
}

// The process has proven itself.
int Session::open(Result<SessionKit> made, Answer* answer) {
  if (vdevice_->gone) return ENODEV;
  if (!made) return made.error().code();
  SessionKit& kit = *made;
  if (!greeting_->shown.empty()) kit.memory = greeting_->shown.take_memory();
  auto files = files_of(kit);
  if (const int error = furnish(greeting_->process, kit); error != 0) return error;
  rdma::Context& context = objects_->context();
  context.epoch = host_.settings.epoch;
  auto* header = context.arena->at<ipc::ArenaHeader>(0);
  header->magic = ipc::kArenaMagic;
  header->epoch = context.epoch;
  vdevice_->device.name.copy(header->vdevice, sizeof header->vdevice - 1);
  ++vdevice_->counters.opened;
  if (files) {
    journal_ = std::make_unique<SessionJournal>(std::move(*files), *objects_);
    journal_->begin(loop().now());
  }

  auto& reply = answer->reply.hello;
  reply.node_guid = vdevice_->device.node_guid;
  reply.grace_ms = host_.settings.grace_ms;
  reply.cheap_fence = greeting_->cheap_fence ? 1 : 0;
  reply.has_userfaultfd = kit.userfaultfd.valid() ? 1 : 0;
  reply.capabilities = vdevice_->device.capabilities;
  reply.vendor_part_id = reply.capabilities.vendor_part_id;
  reply.session = journal_ != nullptr ? context.id : 0;
  reply.epoch = context.epoch;
  answer->fds = {context.arena_fd.get(), context.bell_fd.get(),
                 context.process->space()->arena().get(), doorbell_.get(), kit.events.read.get()};
  if (kit.userfaultfd.valid()) answer->fds.push_back(kit.userfaultfd.get());
  answer->fds.push_back(context.events.get());
  answer->owned.push_back(std::move(kit.events.read));
  answer->owned.push_back(std::move(kit.userfaultfd));
  return 0;
}

// Of a process that is what it was when it connected. The session ends with it.
Result<std::shared_ptr<rdma::Process>> Session::watch(Caller::Opened opened) {
  auto process = rdma::Process::make(talk_.caller()->peer(), std::move(opened.pidfd),
                                     std::move(opened.memory));
  auto death = loop().watch(process->pidfd(), EPOLLIN, [this](uint32_t) { end(false); });
  if (!death) return fail(ENFILE, "watch a process");
  death_watch_ = std::move(*death);
  process->start_reach(loop(), vdevice_->reach_threads);
  return process;
}

int Session::furnish(std::shared_ptr<rdma::Process> process, SessionKit& kit) {
  auto objects =
      SessionObjects::make(*this, vdevice_, talk_.caller(), std::move(process), kit.cgroup);
  if (!objects) return objects.error().code();
  (*objects)->context().id = kit.session;
  (*objects)->context().events = std::move(kit.events.write);
  auto ring = watch(kit.doorbell);
  if (!ring) return ENFILE;
  if (const int error = (*objects)->furnish(kit); error != 0) return error;
  objects_ = std::move(*objects);
  set_session(kit.session);
  doorbell_watch_ = std::move(*ring);
  doorbell_ = std::move(kit.doorbell);
  return 0;
}

Result<std::unique_ptr<Session>> Session::adopt(Furnisher::Adopted from,
                                                std::unique_ptr<Connection> connection,
                                                std::shared_ptr<Vdevice> vdevice, Host host) {
  std::unique_ptr<Session> session(new Session(Fd(), std::move(from.caller), std::move(connection),
                                               std::move(vdevice), std::move(host)));
  session->goodbye_ = true;  // until it is taken over, nothing is told to peers
  if (auto made = session->take_over(std::move(from)); !made) {
    // The rings in the program's memory belong to the program, and to nobody after it.
    if (session->objects_ != nullptr) {
      session->objects_->context().heap->leave();
      session->objects_->context().claims_heap->leave();
    }
    return pass(std::move(made).error());
  }
  session->goodbye_ = false;
  return session;
}

Result<void> Session::take_over(Furnisher::Adopted from) {
  SessionKit& kit = from.kit;
  auto files = files_of(kit);
  if (!files) return pass(std::move(files).error());
  auto image = SessionImage::decode(files->journal->image());
  if (!image) return pass(std::move(image).error());
  auto process = watch(std::move(from.opened));
  if (!process) return pass(std::move(process).error());
  if (const int error = furnish(std::move(*process), kit); error != 0)
    return fail(error, "map its memory: " + std::string(std::strerror(error)));
  journal_ = std::make_unique<SessionJournal>(std::move(*files), *objects_);
  return journal_->take_over(std::move(*image), std::move(kit.channels),
                             from.epoch != 0 ? from.epoch : host_.settings.epoch);
}

}  // namespace vrdma::vrdmad
