// How a session begins: the process proves who it is, and gets the memory that both sides share; or
// another daemon finds both again.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>

#include "core/base/random.h"
#include "core/ipc/event_ends.h"
#include "vrdmad/worker/session.h"

namespace vrdma::vrdmad {

using base::fail;
using base::Fd;
using base::pass;
using base::Result;

namespace {

// Which memory arena belongs to which process, so that a process that opens a second vdevice (of
// any fabric, so on any worker), or one again, can present the arena that it has. An entry is good
// as long as its process lives; the dead are swept out as the table grows.
class ArenaRegistry {
 public:
  void add(const FileId& arena, const rdma::Process& process) {
    const std::lock_guard lock(mutex_);
    if (owners_.size() >= sweep_at_) {
      std::erase_if(owners_, [](const auto& entry) { return !lives(entry.second.first); });
      sweep_at_ = std::max<size_t>(64, 2 * owners_.size());
    }
    owners_[{arena.device, arena.inode}] = {process.pid(), process.start_time()};
  }
  [[nodiscard]] bool belongs(const FileId& arena, const rdma::Peer& peer) {
    const std::lock_guard lock(mutex_);
    const auto it = owners_.find({arena.device, arena.inode});
    return it != owners_.end() && it->second == std::pair(pid_t{peer.pid}, peer.start_time);
  }

 private:
  // Perhaps another one by now, which does no harm: the start time tells.
  static bool lives(pid_t pid) {
    return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))).valid() || errno != ESRCH;
  }
  std::mutex mutex_;
  std::map<std::pair<uint64_t, uint64_t>, std::pair<pid_t, uint64_t>> owners_;
  size_t sweep_at_ = 64;
};

ArenaRegistry& arenas() {
  static ArenaRegistry registry;
  return registry;
}

std::atomic<uint32_t>& context_ids() {
  static std::atomic<uint32_t> next = 1;
  return next;
}

uint32_t next_context_id() { return context_ids().fetch_add(1); }

}  // namespace

void Session::number_from(uint32_t last) {
  if (context_ids().load() <= last) context_ids().store(last + 1);
}

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
    if (shown == nullptr || shown->passed == 0 ||
        !arenas().belongs({shown->device, shown->inode}, talk_.caller()->peer()))
      return EPERM;
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
  if (auto who = talk_.check(); !who) return refuse_caller(who.error());
  auto opened = talk_.caller()->open(false);
  if (!opened) return refuse_caller(opened.error());
  auto objects = make_objects(std::move(*opened));
  if (!objects) {
    greeting_.reset();
    return objects.error().code();
  }
  greeting_->objects = std::move(*objects);
  answer->deferred = true;
  const auto confirmed = [this, alive = std::weak_ptr(alive_)](bool ok) {
    if (alive.expired() || over_) return;
    const auto watched = greeting_->objects->context().process;  // its pidfd outlives the watch
    Answer late;
    const auto who = talk_.check();
    if (!ok)
      late.reply.error =
          refuse_caller(base::Error(EPERM, "its memory does not contain the challenge"));
    else if (!who)
      late.reply.error = refuse_caller(who.error());
    else
      late.reply.error = open(&late);
    if (late.reply.error != 0) {
      ++vdevice_->counters.refused;
      death_watch_.reset();
    }
    greeting_.reset();
    send_answer(std::move(late));
    if (talk_.has_failed()) end(true);
  };
  greeting_->objects->context().process->confirm(greeting_->challenge_addr, greeting_->challenge,
                                                 confirmed);
  return 0;
}

// The process has proven itself.
int Session::open(Answer* answer) {
  if (vdevice_->gone) return ENODEV;
  auto objects = std::move(greeting_->objects);
  Fd memory;
  if (!greeting_->shown.empty()) memory = greeting_->shown.take_memory();
  if (!memory.valid()) {
    auto made = base::make_memfd("vrdma-memory", ipc::kMemoryArenaSize);
    if (!made) return made.error().code();
    memory = std::move(*made);
  }
  auto arena = base::make_memfd("vrdma-queues", ipc::kQueueArenaSize);
  auto bells = base::make_memfd("vrdma-bells", ipc::kBellFileSize);
  if (!arena || !bells) return ENFILE;
  Fd doorbell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  constexpr unsigned kEvents = 32;  // the others wait here
  auto events = ipc::make_event_ends(kEvents);
  auto for_program = memory.duplicate();
  if (!doorbell.valid() || !events || !for_program) return ENFILE;
  rdma::Context& context = objects->context();
  context.events = std::move(events->write);
  context.id = next_context_id();
  context.epoch = host_.settings.epoch;
  if (const int error =
          furnish(std::move(objects),
                  {{std::move(*arena), std::move(*bells), std::move(memory)}, std::move(doorbell)});
      error != 0)
    return error;
  auto* header = context.arena->at<ipc::ArenaHeader>(0);
  header->magic = ipc::kArenaMagic;
  header->epoch = context.epoch;
  vdevice_->device.name.copy(header->vdevice, sizeof header->vdevice - 1);
  ++vdevice_->counters.opened;
  if (!host_.settings.state_dir.empty())
    journal_ = SessionJournal::begin(host_.settings.state_dir, *objects_, doorbell_);

  // Lets a process without privilege make a userfaultfd (ioctl_userfaultfd(2)); absent before 6.1.
  Fd userfaultfd;
  if (vdevice_->permissions.has(provisioning::Permission::kUserfaultfd))
    userfaultfd = Fd(::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
  auto& reply = answer->reply.hello;
  reply.node_guid = vdevice_->device.node_guid;
  reply.grace_ms = host_.settings.grace_ms;
  reply.cheap_fence = greeting_->cheap_fence ? 1 : 0;
  reply.has_userfaultfd = userfaultfd.valid() ? 1 : 0;
  reply.capabilities = vdevice_->device.capabilities;
  reply.vendor_part_id = reply.capabilities.vendor_part_id;
  reply.session = journal_ != nullptr ? context.id : 0;
  reply.epoch = context.epoch;
  answer->fds = {context.arena_fd.get(), context.bell_fd.get(), for_program->get(), doorbell_.get(),
                 events->read.get()};
  if (userfaultfd.valid()) answer->fds.push_back(userfaultfd.get());
  answer->fds.push_back(context.events.get());
  answer->owned.push_back(std::move(*for_program));
  answer->owned.push_back(std::move(events->read));
  answer->owned.push_back(std::move(userfaultfd));
  return 0;
}

// Of a process that is what it was when it connected. The session ends with it.
Result<std::unique_ptr<SessionObjects>> Session::make_objects(Caller::Opened opened) {
  const auto process = rdma::Process::make(talk_.caller()->peer(), std::move(opened.pidfd),
                                           std::move(opened.memory));
  auto objects = SessionObjects::make(*this, vdevice_, talk_.caller(), process);
  if (!objects) return objects;
  auto death = loop().watch(process->pidfd(), EPOLLIN, [this](uint32_t) { end(false); });
  if (!death) return fail(ENFILE, "watch a process");
  death_watch_ = std::move(*death);
  return objects;
}

int Session::furnish(std::unique_ptr<SessionObjects> objects, Files files) {
  auto ring = watch(files.doorbell);
  if (!ring) return ENFILE;
  if (const int error = objects->furnish(std::move(files.shared)); error != 0) return error;
  arenas().add(objects->memory_id(), *objects->context().process);
  objects_ = std::move(objects);
  doorbell_watch_ = std::move(*ring);
  doorbell_ = std::move(files.doorbell);
  return 0;
}

Result<std::unique_ptr<Session>> Session::adopt(SessionFiles files,
                                                std::shared_ptr<Vdevice> vdevice, KnownFiles& known,
                                                Host host) {
  std::unique_ptr<Session> session(new Session(Fd(), nullptr, std::move(vdevice), std::move(host)));
  session->goodbye_ = true;  // until it is taken over, nothing is told to peers
  if (auto made = session->take_over(std::move(files), known); !made) {
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

Result<void> Session::take_over(SessionFiles of, KnownFiles& known) {
  if (const std::string reason = of.journal->forbidden(); !reason.empty())
    return fail(ENOTSUP, reason);
  auto image = SessionImage::decode(of.journal->image());
  if (!image) return pass(std::move(image).error());
  const Anchor anchor = of.anchors->anchors().of;
  auto caller = host_.settings.identity->find(anchor.process);
  if (!caller) return pass(std::move(caller).error());
  talk_.set_caller(std::move(*caller));
  auto opened = talk_.caller()->open(false);
  if (!opened) return pass(std::move(opened).error());
  auto made = make_objects(std::move(*opened));
  if (!made) return pass(std::move(made).error());
  std::unique_ptr<SessionObjects> objects = std::move(*made);
  const auto process = objects->context().process;
  const pid_t pid = process->pid();
  auto looked = known.found.find(pid);
  if (looked == known.found.end()) {
    const auto found = std::make_shared<std::optional<Result<ProcessFiles>>>();
    if (!host_.settings.identity->look(anchor.process.netns_cookie,
                                       [found, pid, process, account = vdevice_->intake,
                                        wanted = known.wanted[pid], time = vdevice_->search_time] {
                                         *found = ProcessFiles::of(pid, process->pidfd(), account,
                                                                   wanted, time);
                                       }))
      return fail(EAGAIN, "its process cannot be looked at now");
    looked = known.found.emplace(pid, std::move(**found)).first;
    if (looked->second) {
      vdevice_->search_time -= looked->second->time_used();
      vdevice_->cpu->spend(looked->second->time_used());
    }
  }
  const auto& files = looked->second;
  if (!files) return fail(files.error().code(), files.error().message());
  auto arena = files->memory_file(anchor.arena, ipc::kQueueArenaSize);
  auto bells = files->memory_file(anchor.bells, ipc::kBellFileSize);
  auto memory = files->memory_file(anchor.memory, ipc::kMemoryArenaSize);
  auto doorbell = files->eventfd(anchor.doorbell);
  auto events = files->event_end(anchor.events);
  for (auto* each : {&arena, &bells, &memory, &doorbell, &events})
    if (!*each) return pass(std::move(*each).error());

  objects->context().id = anchor.session;
  objects->context().events = std::move(*events);
  if (const int error = furnish(
          std::move(objects),
          {{std::move(*arena), std::move(*bells), std::move(*memory)}, std::move(*doorbell)});
      error != 0)
    return fail(error, "map its memory: " + std::string(std::strerror(error)));
  journal_ = std::make_unique<SessionJournal>(std::move(of), *objects_);
  return journal_->take_over(std::move(*image), *files, host_.settings.epoch);
}

}  // namespace vrdma::vrdmad
