#include "vrdmad/session.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>

#include "core/ipc/socket.h"
#include "provisioning/cgroup.h"

namespace vrdma::vrdmad {

using base::Fd;
using ipc::Call;

namespace {

// Between a death without goodbye and the errors of its peers: long enough for what the dead had
// delivered to be taken first.
constexpr auto kBereavement = std::chrono::milliseconds(300);

constexpr uint32_t kVendorPartId = 1;

// Windows of 1 GiB onto a process's memory that are mapped at a time. A key that its owner forged
// can name any address, and the number of our own mappings is limited (vm.max_map_count).
constexpr size_t kMaxWindows = 256;

// Which memory arena belongs to which process, so that a process that opens a second vdevice (of
// any fabric, so on any worker), or one again, can present the arena that it has. An entry is good
// as long as its process lives; the dead are swept out as the table grows.
class ArenaRegistry {
 public:
  void add(const Fd& arena, const rdma::Process& process) {
    const std::lock_guard lock(mutex_);
    if (owners_.size() >= sweep_at_) {
      std::erase_if(owners_, [](const auto& entry) {
        return rdma::Process::start_time_of(entry.second.first) != entry.second.second;
      });
      sweep_at_ = std::max<size_t>(64, 2 * owners_.size());
    }
    owners_[key(arena)] = {process.pid(), process.start_time()};
  }
  [[nodiscard]] bool belongs(const Fd& arena, const rdma::Process& process) {
    const std::lock_guard lock(mutex_);
    const auto it = owners_.find(key(arena));
    return it != owners_.end() && it->second == std::pair(process.pid(), process.start_time());
  }

 private:
  using Key = std::pair<dev_t, ino_t>;
  static Key key(const Fd& fd) {
    // Of a file that is not ours, not even fstat(2) need return: a FUSE server answers it.
    if (::fcntl(fd.get(), F_GET_SEALS) != (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) return {};
    struct stat status {};
    return ::fstat(fd.get(), &status) == 0 ? Key(status.st_dev, status.st_ino) : Key{};
  }
  std::mutex mutex_;
  std::map<Key, std::pair<pid_t, uint64_t>> owners_;
  size_t sweep_at_ = 64;
};

ArenaRegistry& arenas() {
  static ArenaRegistry registry;
  return registry;
}

bool is_raw(const ipc::Request& request) {
  return request.call == Call::kCreateQp &&
         request.create_qp.type == static_cast<uint32_t>(verbs::QpType::kRawPacket);
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

base::Result<std::unique_ptr<Session>> Session::start(Fd socket, std::shared_ptr<Vdevice> vdevice,
                                                      transport::Runner& runner,
                                                      const SessionSettings& settings,
                                                      std::function<void(Session*)> ended) {
  std::unique_ptr<Session> session(
      new Session(std::move(socket), std::move(vdevice), runner, settings, std::move(ended)));
  auto watch =
      runner.loop().watch(session->socket_.get(), EPOLLIN | EPOLLRDHUP,
                          [raw = session.get()](uint32_t events) { raw->on_socket(events); });
  if (!watch) return base::pass(std::move(watch.error()));
  session->socket_watch_ = std::move(*watch);
  return session;
}

Session::Session(Fd socket, std::shared_ptr<Vdevice> vdevice, transport::Runner& runner,
                 const SessionSettings& settings, std::function<void(Session*)> ended)
    : socket_(std::move(socket)),
      vdevice_(std::move(vdevice)),
      runner_(runner),
      settings_(settings),
      ended_(std::move(ended)) {}

Session::~Session() {
  socket_watch_.reset();
  too_soon_.reset();
  death_watch_.reset();
  doorbell_watch_.reset();
  close_connection(std::move(socket_));
  if (context_ == nullptr) return;
  if (!goodbye_) leave_survivors();
  context_.reset();
}

// The peers that were linked to us learn of our death after a moment, unless they have gone on to
// another life (RESET) by then.
void Session::leave_survivors() {
  struct Survivor {
    rdma::Qp* qp;
    std::weak_ptr<int> alive;
  };
  std::vector<Survivor> survivors;
  const auto bereave = [&](rdma::Qp& qp) {
    for (rdma::Qp* peer : {qp.out, qp.in}) {
      if (peer == nullptr || peer->context == context_.get()) continue;
      peer->bereaved = true;  // which is written down when the link is cut
      survivors.push_back({peer, peer->alive});
    }
  };
  context_->qps.each(bereave);
  context_->targets.each([&](rdma::Target& target) {
    if (target.qp->openers.size() == 1) bereave(*target.qp);
  });
  if (survivors.empty()) return;
  auto timer = std::make_shared<base::EventLoop::Timer>();
  *timer = loop().after(kBereavement, [survivors, timer] {
    for (const auto& survivor : survivors)
      if (!survivor.alive.expired() && (survivor.qp->in_used || survivor.qp->out_used))
        survivor.qp->fail();
    timer->reset();
  });
}

void Session::end(bool malformed) {
  if (over_) return;
  over_ = true;
  if (malformed) ++vdevice_->counters.malformed;
  socket_watch_.reset();
  death_watch_.reset();
  doorbell_watch_.reset();
  // Not here: a queue of ours may be running.
  loop().post([this, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    const auto ended = ended_;  // it destroys this session, and with it ended_
    ended(this);
  });
}

void Session::device_gone() {
  if (context_ == nullptr) return;
  context_->raise(verbs::Event::kDeviceFatal, 0);
  const auto fail = [](rdma::Qp& qp) {
    if (qp.state() != verbs::QpState::kReset) qp.fail();
  };
  context_->qps.each(fail);
  context_->targets.each([&](rdma::Target& target) { fail(*target.qp); });
}

void Session::on_socket(uint32_t events) {
  // A client of ours waits for the answer. (To leave a message where it is would wake us for ever.)
  if (busy_) return end((events & (EPOLLHUP | EPOLLRDHUP)) == 0);
  ipc::Request request;
  Fds fds;
  auto received = ipc::receive_message(socket_.get(), &request, sizeof request, &fds);
  if (!received) {
    if (received.error().code() == EAGAIN) return;
    return end(received.error().code() == EBADMSG);
  }
  if (request.magic != ipc::kMagic ||
      (!fds.empty() && request.call != Call::kHello && request.call != Call::kOpenXrcd &&
       request.call != Call::kImportDevice && !is_raw(request)))
    return end(true);
  if (comes_too_soon(request)) return;
  handle(request, std::move(fds));
}

// Registrations beyond mr_rate wait here. The program is patient: to it the daemon is busy.
bool Session::comes_too_soon(const ipc::Request& request) {
  if (context_ == nullptr || (request.call != Call::kRegMr && request.call != Call::kReregMr &&
                              request.call != Call::kImportMr))
    return false;
  const auto now = base::EventLoop::now();
  auto& bucket = vdevice_->registrations;
  bucket.spend(now, 1);
  const base::Duration wait = bucket.wait(now);
  if (wait.count() == 0) return false;
  vdevice_->ledger.count_refusal(provisioning::Kind::kMrRate);
  busy_ = true;
  too_soon_ = loop().after(wait, [this, request] {
    busy_ = false;
    handle(request, {});
  });
  return true;
}

void Session::handle(const ipc::Request& request, Fds fds) {
  ++vdevice_->counters.requests;
  sequence_ = request.sequence;
  Answer answer;
  if (request.call == Call::kResume && context_ == nullptr && greeting_ == nullptr && fds.empty()) {
    if (resume(request)) return end(false);
    answer.reply.error = ESTALE;
  } else if (request.version < ipc::kOldestVersion || request.version > ipc::kVersion) {
    refuse_version(request.version);
    answer.reply.error = EPROTONOSUPPORT;
  } else if (!serve_repeated(request, &answer)) {
    version_ = request.version;
    will_serve(request);
    answer.reply.error = dispatch(request, std::move(fds), &answer);
    answer.reply.sequence = sequence_;
    if (answer.reply.error == 0) remember(request, answer.reply);
  }
  if (answer.reply.error != 0) ++vdevice_->counters.refused;
  if (!answer.deferred) send_answer(std::move(answer));
  // Not when the socket closes: a forked child may hold it for long.
  if (goodbye_) end(false);
}

// Said once: a program may try for ever.
void Session::refuse_version(uint32_t version) {
  static std::atomic<bool> said = false;
  if (said.exchange(true)) return;
  spdlog::warn(
      "vdevice {}: a program speaks version {} of the session protocol; this vrdmad serves "
      "{} and {}",
      vdevice_->device.name, version, ipc::kOldestVersion, ipc::kVersion);
}

void Session::send_answer(Answer answer) {
  busy_ = false;
  if (sequence_ == 0) return;  // nobody waits for it
  answer.reply.sequence = sequence_;
  // A client reads each answer before it asks again, so there is always room; one that does not
  // loses its session.
  if (!ipc::send_message(socket_.get(), &answer.reply, sizeof answer.reply, answer.fds)) end(true);
}

int Session::dispatch(const ipc::Request& request, Fds fds, Answer* answer) {
  switch (request.call) {
    case Call::kProbe:
      return probe(answer);
    case Call::kHello:
      return hello(request.hello, std::move(fds), answer);
    default:
      break;
  }
  if (request.call == Call::kOpenXrcd && context_ != nullptr && !vdevice_->gone)
    return open_xrcd(request.open_xrcd, std::move(fds), answer);
  if (request.call == Call::kImportDevice && context_ != nullptr && !vdevice_->gone)
    return import_device(std::move(fds));
  if (is_raw(request) && context_ != nullptr && !vdevice_->gone)
    return create_qp(request.create_qp, std::move(fds), answer);
  if (context_ == nullptr) return ENOTCONN;
  switch (request.call) {
    case Call::kGoodbye:
      goodbye_ = true;
      return 0;
    case Call::kDeallocPd:
      return dealloc_pd(request.handle.handle);
    case Call::kDeregMr:
      return dereg_mr(request.handle.handle, answer);
    case Call::kDeallocMw:
      return dealloc_mw(request.handle.handle, answer);
    case Call::kDestroyChannel:
      return destroy_channel(request.handle.handle);
    case Call::kDestroyCq:
      return destroy_cq(request.handle.handle);
    case Call::kDestroySrq:
      return destroy_srq(request.handle.handle);
    case Call::kDestroyQp:
      return destroy_qp(request.handle.handle);
    case Call::kCloseXrcd:
      return close_xrcd(request.handle.handle);
    case Call::kDestroyFlow:
      return destroy_flow(request.handle.handle);
    case Call::kDestroyAh:
      return destroy_ah(request.handle.handle);
    case Call::kDetachMcast:
      return mcast(request.mcast, false);
    case Call::kQueryQp:
      return query_qp(request.handle.handle, answer);
    default:
      break;
  }
  if (vdevice_->gone) return EIO;
  switch (request.call) {
    case Call::kQueryDevice:
      return query_device(answer);
    case Call::kQueryPort:
      return query_port(answer);
    case Call::kQueryGids:
      return query_gids(request.gids, answer);
    case Call::kAllocPd:
      return alloc_pd(answer);
    case Call::kRegMr:
      return reg_mr(request.reg_mr, answer);
    case Call::kReregMr:
      return rereg_mr(request.rereg_mr, answer);
    case Call::kImportPd:
      return import_pd(request.handle.handle, answer);
    case Call::kImportMr:
      return import_mr(request.import_mr, answer);
    case Call::kAllocMw:
      return alloc_mw(request.alloc_mw, answer);
    case Call::kCreateChannel:
      return create_channel(answer);
    case Call::kCreateCq:
      return create_cq(request.create_cq, answer);
    case Call::kResizeCq:
      return resize_cq(request.resize_cq, answer);
    case Call::kCreateSrq:
      return create_srq(request.create_srq, answer);
    case Call::kModifySrq:
      return modify_srq(request.modify_srq);
    case Call::kQuerySrq:
      return query_srq(request.handle.handle, answer);
    case Call::kCreateQp:
      return create_qp(request.create_qp, {}, answer);
    case Call::kCreateFlow:
      return create_flow(request.create_flow, answer);
    case Call::kOpenQp:
      return open_qp(request.open_qp, answer);
    case Call::kModifyQp:
      return modify_qp(request.modify_qp, answer);
    case Call::kCreateAh:
      return create_ah(request.create_ah, answer);
    case Call::kAttachMcast:
      return mcast(request.mcast, true);
    default:
      return EOPNOTSUPP;
  }
}

int Session::charge(provisioning::Kind kind, uint64_t amount, rdma::Charges* charges) {
  auto charge = vdevice_->ledger.charge(kind, amount, cgroup_);
  if (!charge) return charge.error().code();
  charges->push_back(std::make_shared<provisioning::Charge>(std::move(*charge)));
  return 0;
}

// The caller holds the command descriptor of another session of this vdevice, and is of its user.
int Session::import_device(Fds fds) {
  struct stat wanted {};
  // Of a file that is not ours, not even fstat(2) need return.
  const bool ours =
      fds.size() == 1 &&
      ::fcntl(fds[0].get(), F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) &&
      ::fstat(fds[0].get(), &wanted) == 0;
  if (!ours || context_->exporter != 0) return EINVAL;
  const rdma::Process& self = *context_->process;
  for (const rdma::Context* other : vdevice_->device.contexts) {
    struct stat file {};
    if (::fstat(other->arena_fd.get(), &file) != 0 || file.st_ino != wanted.st_ino ||
        file.st_dev != wanted.st_dev)
      continue;
    if (other->process->uid() != self.uid() ||
        other->process->user_namespace() != self.user_namespace())
      return EPERM;
    context_->exporter = other->id;
    return 0;
  }
  return ENODEV;
}

int Session::probe(Answer* answer) {
  if (vdevice_->gone) return ENODEV;
  answer->reply.probe.node_guid = vdevice_->device.node_guid;
  return 0;
}

// To its cgroup, from now on.
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
  auto process = rdma::Process::identify(socket_.get());
  if (!process) return EPERM;
  auto greeting = std::make_unique<Greeting>();
  greeting->context = std::make_unique<rdma::Context>();
  attribute(**process);
  if (const int error = charge(provisioning::Kind::kContexts, 1, &greeting->context->charges);
      error != 0)
    return error;
  if (!fds.empty()) {
    if (!arenas().belongs(fds.front(), **process)) return EPERM;
    greeting->memory = std::move(fds.front());
  }
  greeting->cheap_fence = request.cheap_fence != 0;
  greeting->version = version_;
  if (!(*process)->start_reach(loop())) return ENFILE;
  auto death = loop().watch((*process)->pidfd(), EPOLLIN, [this](uint32_t) { end(false); });
  if (!death) return ENFILE;
  death_watch_ = std::move(*death);
  greeting->context->process = *process;
  greeting_ = std::move(greeting);
  answer->deferred = true;
  busy_ = true;
  const auto confirmed = [this, alive = std::weak_ptr(alive_)](bool ok) {
    if (alive.expired() || over_) return;
    Answer late;
    late.reply.error = ok ? open(&late) : EPERM;
    greeting_.reset();
    if (late.reply.error != 0) {
      ++vdevice_->counters.refused;
      death_watch_.reset();
    }
    send_answer(std::move(late));
  };
  (*process)->confirm(request.cookie_addr, request.cookie, confirmed);
  return 0;
}

// The second half of kHello: the peer is who it says it is.
int Session::open(Answer* answer) {
  if (vdevice_->gone) return ENODEV;
  auto context = std::move(greeting_->context);
  Fd memory = std::move(greeting_->memory);
  if (!memory.valid()) {
    auto made = base::make_memfd("vrdma-memory", ipc::kMemoryArenaSize);
    if (!made) return made.error().code();
    memory = std::move(*made);
  }
  auto arena = base::make_memfd("vrdma-queues", ipc::kQueueArenaSize);
  auto bells = base::make_memfd("vrdma-bells", ipc::kBellFileSize);
  if (!arena || !bells) return ENFILE;
  Fd doorbell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  std::array<int, 2> events{};
  if (!doorbell.valid() || ::pipe2(events.data(), O_CLOEXEC) != 0) return ENFILE;
  Fd events_read(events[0]);
  context->event_pipe = Fd(events[1]);
  ::fcntl(context->event_pipe.get(), F_SETFL, O_NONBLOCK);
  auto own_end = context->event_pipe.reopen(O_WRONLY | O_NONBLOCK);
  auto for_program = memory.duplicate();
  if (!own_end || !for_program) return ENFILE;
  context->id = next_context_id();
  context->epoch = greeting_->version >= ipc::kResumes ? settings_.epoch : 0;
  if (const int error = furnish(std::move(context), {std::move(*arena), std::move(*bells),
                                                     std::move(memory), std::move(doorbell)});
      error != 0)
    return error;
  auto* header = context_->arena.at<ipc::ArenaHeader>(0);
  header->magic = ipc::kArenaMagic;
  header->epoch = context_->epoch;
  vdevice_->device.name.copy(header->vdevice, sizeof header->vdevice - 1);
  ++vdevice_->counters.opened;
  if (greeting_->version >= ipc::kResumes) begin_file(events_read);

  // Lets a process without privilege make a userfaultfd (ioctl_userfaultfd(2)); absent before 6.1.
  Fd userfaultfd(::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
  auto& reply = answer->reply.hello;
  reply.node_guid = vdevice_->device.node_guid;
  reply.grace_ms = settings_.grace_ms;
  reply.cheap_fence = greeting_->cheap_fence ? 1 : 0;
  reply.has_userfaultfd = userfaultfd.valid() ? 1 : 0;
  reply.vendor_part_id = kVendorPartId;
  reply.session = file_ != nullptr ? context_->id : 0;
  reply.epoch = context_->epoch;
  answer->fds = {context_->arena_fd.get(), context_->bell_fd.get(), for_program->get(),
                 doorbell_.get(), events_read.get()};
  if (userfaultfd.valid()) answer->fds.push_back(userfaultfd.get());
  if (greeting_->version >= ipc::kResumes) answer->fds.push_back(own_end->get());
  answer->owned.push_back(std::move(*for_program));
  answer->owned.push_back(std::move(events_read));
  answer->owned.push_back(std::move(userfaultfd));
  answer->owned.push_back(std::move(*own_end));
  return 0;
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
  arenas().add(files.memory, process);
  auto space = rdma::AddressSpace::of_arena(std::move(files.memory), kMaxWindows);
  if (!space) return space.error().code();

  auto ring =
      loop().watch(files.doorbell.get(), EPOLLIN | EPOLLET, [this](uint32_t) { on_doorbell(); });
  if (!ring) return ENFILE;

  process.set_space(std::move(*space));
  context->device = &vdevice_->device;
  context->arena_fd = std::move(files.arena);
  context->arena = std::move(*arena_map);
  context->bell_fd = std::move(files.bells);
  context->bells = std::move(*bell_map);
  context->heap = std::make_shared<rdma::ArenaHeap>(std::move(*heap_fd), ipc::kHeapOffset,
                                                    ipc::kQueueArenaSize);
  context->claims_heap = std::make_shared<rdma::ArenaHeap>(std::move(*claims_fd),
                                                           ipc::kClaimsOffset, ipc::kBellFileSize);
  context->next_key_slot = next_context_id() * 7919 % (ipc::kMaxKeys - 1) + 1;
  context->on_corrupt = [this] { end(true); };
  context_ = std::move(context);
  vdevice_->device.contexts.push_back(context_.get());
  doorbell_watch_ = std::move(*ring);
  doorbell_ = std::move(files.doorbell);
  return 0;
}

// The program published work in a queue that nobody executed, or a receive that somebody waits
// for. The bits say where; what they say is only a hint.
void Session::on_doorbell() {
  auto* kicks =
      reinterpret_cast<std::atomic<uint64_t>*>(context_->arena.bytes() + ipc::kKickOffset);
  const size_t slots = context_->qps.capacity();
  for (size_t word = 0; word * 64 < slots; ++word) {
    uint64_t bits = kicks[word].exchange(0, std::memory_order_acquire);
    while (bits != 0) {
      const auto slot =
          static_cast<uint32_t>(word * 64) + static_cast<uint32_t>(__builtin_ctzll(bits));
      bits &= bits - 1;
      rdma::Qp* qp = context_->qps.find(slot + 1);
      if (qp == nullptr) continue;
      if (qp->sender) qp->sender->kick();
      for (rdma::Sender* waiter : std::list(qp->waiters)) waiter->receive_posted();
    }
  }
  context_->srqs.each([](rdma::Srq& srq) {
    for (rdma::Sender* waiter : std::list(srq.waiters)) waiter->receive_posted();
  });
}

}  // namespace vrdma::vrdmad
