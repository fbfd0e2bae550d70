// How a session begins: the process proves who it is, and gets the memory that both sides share.
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <map>
#include <mutex>

#include "core/base/random.h"
#include "core/ipc/event_ends.h"
#include "provisioning/cgroup.h"
#include "transport/hole_guard.h"
#include "vrdmad/worker/session.h"

namespace vrdma::vrdmad {

using base::Fd;

namespace {

constexpr uint32_t kVendorPartId = 1;

// Windows of 1 GiB onto a process's memory that are mapped at a time. A key that its owner forged
// can name any address, and the number of our own mappings is limited (vm.max_map_count).
constexpr size_t kMaxWindows = 256;

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

// Logged at powers of two: a program may try again and again.
int Session::refuse_caller(const base::Error& why) {
  if (why.code() == EAGAIN) return EAGAIN;  // it is not its fault, or no more than its neighbours'
  death_watch_.reset();                     // while the pidfd that it watches is open
  greeting_.reset();
  if (const uint64_t so_far = ++vdevice_->counters.unproven; std::has_single_bit(so_far))
    spdlog::warn("vdevice {}: refused a program: {} ({} so far)", vdevice_->device.name,
                 why.message(), so_far);
  ++failures_;
  return why.code() == EACCES ? EACCES : EPERM;
}

// To its cgroup, from now on.
// By its number, which is the process's own: it lived before, and is compared again afterwards.
void Session::attribute(const rdma::Process& process) {
  const std::string cgroup = provisioning::cgroup_of(process.pid());
  cgroup_ = vdevice_->cgroup(cgroup);
  if (!vdevice_->ibdev.empty() && provisioning::has_rdma_controller()) limit_in_kernel(cgroup);
}

// Should the kernel not want it, our own limits hold all the same.
void Session::limit_in_kernel(const std::string& cgroup) {
  using provisioning::Kind;
  const provisioning::Ledger& ledger = vdevice_->ledger;
  uint64_t objects = 0;
  for (const Kind kind :
       {Kind::kPd, Kind::kMr, Kind::kCq, Kind::kQp, Kind::kSrq, Kind::kAh, Kind::kMw})
    objects += ledger.limit(kind);
  (void)provisioning::set_rdma_max(cgroup, vdevice_->ibdev, ledger.limit(Kind::kContexts), objects);
}

int Session::hello(const ipc::HelloRequest& request, Fds fds, Answer* answer) {
  if (context_ != nullptr) return EISCONN;
  if (vdevice_->gone) return ENODEV;
  if (auto who = caller_->check(sender_); !who) return refuse_caller(who.error());
  if (greeting_ != nullptr)
    return refuse_caller(base::Error(EPERM, "it asked for another challenge"));
  auto greeting = std::make_unique<Greeting>();
  greeting->challenge = base::random64();
  greeting->challenge_addr = request.challenge_addr;
  greeting->cheap_fence = request.cheap_fence != 0;
  if (!fds.empty()) {
    const intake::Verdict* shown = fds.only();
    if (shown == nullptr || shown->passed == 0 ||
        !arenas().belongs({shown->device, shown->inode}, caller_->peer()))
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
  if (context_ != nullptr) return EISCONN;
  if (greeting_ == nullptr) return ENOTCONN;
  if (vdevice_->gone) return ENODEV;
  if (auto who = caller_->check(sender_); !who) return refuse_caller(who.error());
  auto opened = caller_->open(false);
  if (!opened) return refuse_caller(opened.error());
  const auto process =
      rdma::Process::make(caller_->peer(), std::move(opened->pidfd), std::move(opened->memory));
  auto context = std::make_unique<rdma::Context>();
  attribute(*process);
  if (const int error = charge(provisioning::Kind::kContexts, 1, &context->charges); error != 0) {
    greeting_.reset();
    return error;
  }
  process->start_reach(loop(), vdevice_->reach_threads);
  auto death = loop().watch(process->pidfd(), EPOLLIN, [this](uint32_t) { end(false); });
  if (!death) return ENFILE;
  death_watch_ = std::move(*death);
  context->process = process;
  greeting_->context = std::move(context);
  answer->deferred = true;
  busy_ = true;
  const auto confirmed = [this, alive = std::weak_ptr(alive_)](bool ok) {
    if (alive.expired() || over_) return;
    const auto watched = greeting_->context->process;  // its pidfd outlives the watch
    Answer late;
    const auto who = caller_->check(sender_);
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
    if (failures_ >= kMostFailures) end(true);
  };
  process->confirm(greeting_->challenge_addr, greeting_->challenge, confirmed);
  return 0;
}

// The process has proven itself.
int Session::open(Answer* answer) {
  if (vdevice_->gone) return ENODEV;
  auto context = std::move(greeting_->context);
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
  context->events = std::move(events->write);
  context->id = next_context_id();
  context->epoch = settings_.epoch;
  if (const int error = furnish(std::move(context), {std::move(*arena), std::move(*bells),
                                                     std::move(memory), std::move(doorbell)});
      error != 0)
    return error;
  auto* header = context_->arena.at<ipc::ArenaHeader>(0);
  header->magic = ipc::kArenaMagic;
  header->epoch = context_->epoch;
  vdevice_->device.name.copy(header->vdevice, sizeof header->vdevice - 1);
  ++vdevice_->counters.opened;
  begin_file();

  // Lets a process without privilege make a userfaultfd (ioctl_userfaultfd(2)); absent before 6.1.
  Fd userfaultfd;
  if (vdevice_->permissions.has(provisioning::Permission::kUserfaultfd))
    userfaultfd = Fd(::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
  auto& reply = answer->reply.hello;
  reply.node_guid = vdevice_->device.node_guid;
  reply.grace_ms = settings_.grace_ms;
  reply.cheap_fence = greeting_->cheap_fence ? 1 : 0;
  reply.has_userfaultfd = userfaultfd.valid() ? 1 : 0;
  reply.vendor_part_id = kVendorPartId;
  reply.session = file_ != nullptr ? context_->id : 0;
  reply.epoch = context_->epoch;
  answer->fds = {context_->arena_fd.get(), context_->bell_fd.get(), for_program->get(),
                 doorbell_.get(), events->read.get()};
  if (userfaultfd.valid()) answer->fds.push_back(userfaultfd.get());
  answer->fds.push_back(context_->events.get());
  answer->owned.push_back(std::move(*for_program));
  answer->owned.push_back(std::move(events->read));
  answer->owned.push_back(std::move(userfaultfd));
  return 0;
}

// The program reads slowly, or not at all.
void Session::send_events_later() {
  constexpr std::chrono::milliseconds kPause(10);
  if (!unsent_.active())
    unsent_ = loop().after(kPause, [this] {
      unsent_.reset();
      context_->send_events();
    });
}

// Makes `context` the session's, with the memory that it shares with the program.
int Session::furnish(std::unique_ptr<rdma::Context> context, Files files) {
  rdma::Process& process = *context->process;
  auto arena_map =
      base::Mapping::shared(files.arena, ipc::kQueueArenaSize, 0, PROT_READ | PROT_WRITE);
  auto bell_map = base::Mapping::shared(files.bells, ipc::kBellFileSize, 0, PROT_READ | PROT_WRITE);
  auto heap_fd = files.arena.duplicate();
  auto claims_fd = files.bells.duplicate();
  if (!arena_map || !bell_map || !heap_fd || !claims_fd) return ENFILE;
  arena_id_ = file_id(files.arena);
  memory_id_ = file_id(files.memory);
  arenas().add(memory_id_, process);
  auto space = rdma::AddressSpace::of_arena(
      std::move(files.memory),
      {kMaxWindows, transport::HoleGuard::watch, !transport::HoleGuard::started()});
  if (!space) return space.error().code();

  auto ring = watch(files.doorbell);
  if (!ring) return ENFILE;

  process.set_space(std::move(*space));
  context->device = &vdevice_->device;
  context->arena_fd = std::move(files.arena);
  context->arena = std::move(*arena_map);
  context->bell_fd = std::move(files.bells);
  context->bells = std::move(*bell_map);
  context->heap = std::make_shared<rdma::ArenaHeap>(std::move(*heap_fd), context->arena.bytes(),
                                                    ipc::kHeapOffset, ipc::kQueueArenaSize,
                                                    vdevice_->reach_threads);
  context->claims_heap = std::make_shared<rdma::ArenaHeap>(
      std::move(*claims_fd), context->bells.bytes(), ipc::kClaimsOffset, ipc::kBellFileSize,
      vdevice_->reach_threads);
  context->on_corrupt = [this] { end(true); };
  context->on_unsent_events = [this] { send_events_later(); };
  context_ = std::move(context);
  vdevice_->device.contexts.push_back(context_.get());
  doorbell_watch_ = std::move(*ring);
  doorbell_ = std::move(files.doorbell);
  return 0;
}

}  // namespace vrdma::vrdmad
