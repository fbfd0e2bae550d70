#include "vrdmad/broker/broker.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "core/base/cpu_meter.h"
#include "core/verbs/socket_address.h"

namespace vrdma::vrdmad {

using base::fail;
using base::Fd;
using base::pass;
using base::Result;
using broker::Answer;
using broker::get;
using broker::put;
using broker::Request;
using Op = Request::Op;

namespace {

// Control learns soon that a worker has ended, and names another.
constexpr std::chrono::milliseconds kWorkerHasEnded(20);

Request request_of(Op op, uint32_t entry = 0) {
  Request request;
  request.op = op;
  request.entry = entry;
  return request;
}

// As many as a request can have.
void put_wanted(std::span<const Request::Wanted> wanted, base::Duration time, Request* request) {
  request->which = static_cast<uint32_t>(std::min(wanted.size(), Request::kMostWanted));
  std::copy_n(wanted.begin(), request->which, request->wanted.begin());
  request->time_ns = static_cast<uint64_t>(std::max<base::Duration::rep>(time.count(), 0));
}

// Those that the process does not have are invalid.
void get_files(const Request& request, const Answer& answer, Fd* next, const Fd* end,
               std::vector<Fd>* files) {
  for (uint32_t i = 0; i < request.which; ++i) {
    const bool found = (answer.found >> i & 1) != 0 && next != end;
    files->push_back(found ? std::move(*next++) : Fd());
  }
}

// Beside an answer that gives the memory of a process.
Caller::Opened opened(Broker::Beside& beside, bool writable) {
  return {{std::move(beside[0]), std::move(beside[1]), writable}, std::move(beside[2])};
}

void put_recipient(const Recipient& recipient, Request* request) {
  request->first = recipient.worker;
  request->files = recipient.rights;
}

}  // namespace

Result<void> broker::send_answer(const Fd& socket, const Answer& answer, const Beside& beside) {
  std::array<int, std::tuple_size_v<Beside>> fds{};
  size_t count = 0;
  for (const Fd& fd : beside)
    if (fd.valid()) fds[count++] = fd.get();
  return ipc::send_message(socket.get(), &answer, sizeof answer, fds.data(), count);
}

Result<Answer> Broker::ask(const Request& request, Beside* beside) {
  Answer answer = serve(request, beside);
  if (answer.error != 0) return fail(answer.error, std::string(get(answer.reason)));
  return answer;
}

std::shared_ptr<Caller> Broker::caller(uint32_t entry, const rdma::Peer& peer) {
  return std::make_shared<Caller>(shared_from_this(), entry, peer);
}

// The broker's entry of a listening socket. Accepts for it.
struct Broker::Listener {
  Listener(std::shared_ptr<Broker> whose, uint32_t number, Reception callbacks,
           const base::Clock& its_clock)
      : broker(std::move(whose)),
        entry(number),
        reception(std::move(callbacks)),
        clock(its_clock) {}
  ~Listener() { forget(entry); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // 0, or an errno of accept(2).
  int accept() {
    Beside beside;
    Request request = request_of(Op::kAccept, entry);
    request.which = reception.wants ? 0 : 1;
    const Recipient recipient = reception.recipient ? reception.recipient() : Recipient{};
    put_recipient(recipient, &request);
    Answer came = broker->serve(request, &beside);
    if (!beside[0].valid()) {
      if (came.error == EAGAIN) closed_until = clock.now() + std::chrono::nanoseconds(came.number);
      if (came.error == ENXIO) closed_until = clock.now() + kWorkerHasEnded;
      return came.error;
    }
    if (came.error == EXDEV) {
      reception.foreign(std::move(beside[0]));
      return 0;
    }
    reception.arrived();
    const uint32_t its = came.entry;
    if (reception.wants) {
      if (!reception.wants(came.peer.uid())) {
        forget(its);
        reception.lost(std::move(beside[0]));
        return 0;
      }
      Beside none;
      request.entry = its;
      came = broker->serve(request, &none);
    }
    if (came.error == 0) {
      reception.accepted({std::move(beside[0]), broker->caller(its, came.peer)});
    } else {
      if (its != 0) forget(its);
      reception.lost(std::move(beside[0]));
    }
    return 0;
  }
  void forget(uint32_t which) const {
    Beside none;
    (void)broker->serve(request_of(Op::kForget, which), &none);
  }
  [[nodiscard]] base::Duration closed_for() const {
    return std::max(closed_until - clock.now(), reception.closed_for());
  }

  const std::shared_ptr<Broker> broker;
  const uint32_t entry;
  const Reception reception;
  const base::Clock& clock;  // of its loop
  base::TimePoint closed_until{};
};

Result<std::unique_ptr<serve::Acceptor>> Broker::listen(base::EventLoop& loop,
                                                        const std::string& path,
                                                        uint64_t netns_cookie,
                                                        Reception reception) {
  Request request = request_of(Op::kListen);
  request.number = netns_cookie;
  if (!put(path, request.text)) return fail(ENAMETOOLONG, "the path is too long: " + path);
  Beside beside;
  auto answer = ask(request, &beside);
  if (!answer) return pass(std::move(answer).error());
  const auto listener = std::make_shared<Listener>(shared_from_this(), answer->entry,
                                                   std::move(reception), loop.clock());
  return serve::Acceptor::start(
      loop, std::move(beside[0]), [listener](const Fd&) { return listener->accept(); },
      [listener] { return listener->closed_for(); });
}

Result<Broker::Found> Broker::find(const rdma::Peer& peer, const std::string& path,
                                   Recipient recipient, const Search& search) {
  Request request = request_of(Op::kFind);
  request.peer = peer;
  put_recipient(recipient, &request);
  if (!put(path, request.text)) return fail(ENAMETOOLONG, "the path is too long: " + path);
  if (search.earlier != nullptr) request.entry = search.earlier->entry();
  put_wanted(search.wanted, search.time, &request);
  Beside beside;
  const Answer answer = serve(request, &beside);
  base::Duration none{};
  base::Duration* const used = search.used != nullptr ? search.used : &none;
  *used += std::chrono::nanoseconds(answer.number);
  if (answer.error != 0) return fail(answer.error, std::string(get(answer.reason)));
  Found found{caller(answer.entry, answer.peer), opened(beside, false), {}};
  get_files(request, answer, beside.begin() + Request::kMemoryFiles, beside.end(), &found.files);
  if (search.wanted.size() > request.which) {
    auto rest = found.caller->take({search.wanted.begin() + request.which, search.wanted.end()},
                                   search.time, used);
    if (!rest) return pass(std::move(rest).error());
    std::move(rest->begin(), rest->end(), std::back_inserter(found.files));
  }
  return found;
}

Result<netns::Netns> Broker::netns(const std::string& spec) {
  Request request = request_of(Op::kNetns);
  if (spec.find('\0') != std::string::npos)
    return fail(EINVAL, "the name of a netns cannot contain a NUL");
  if (!put(spec, request.text))
    return fail(EINVAL, "the name of a netns has " + std::to_string(spec.size()) +
                            " characters: at most 1023 are possible");
  Beside beside;
  auto answer = ask(request, &beside);
  if (!answer) return pass(std::move(answer).error());
  return netns::Netns{std::move(beside[0]), answer->number};
}

Result<netns::Link> Broker::link(int nsid, const std::string& name, uint32_t ifindex) {
  Request request = request_of(Op::kLink);
  request.number = static_cast<uint32_t>(nsid);
  request.which = ifindex;
  if (!put(name, request.text)) return fail(ENODEV, "there is no netdev of that name");
  netns::Link link;
  for (;;) {
    Beside none;
    const auto answer = ask(request, &none);
    if (!answer) return base::pass(answer.error());
    const Answer::Link& part = answer->link;
    link.ifindex = part.ifindex;
    link.name = get(part.name);
    link.mtu = part.mtu;
    link.up = part.up != 0;
    link.loopback = part.loopback != 0;
    link.has_more = part.has_more != 0;
    if (part.has_mac != 0) link.mac = part.mac;
    for (uint32_t i = 0; i < std::min(part.addresses, Answer::Link::kAddresses); ++i) {
      link.addresses.push_back(part.address[i]);
      if ((part.tentative >> i & 1) != 0) link.tentative.push_back(part.address[i]);
    }
    if (part.addresses == 0 ||
        link.addresses.size() >= std::min(answer->number, uint64_t{netns::Link::kMostAddresses}))
      return link;
    request.first = static_cast<uint32_t>(link.addresses.size());
  }
}

Result<WorkerProcess> Broker::start_worker() {
  Beside beside;
  auto answer = ask(request_of(Op::kStartWorker), &beside);
  if (!answer) return pass(std::move(answer).error());
  return WorkerProcess(shared_from_this(), answer->entry, std::move(beside[0]),
                       std::move(beside[1]), std::move(beside[2]));
}

WorkerProcess::~WorkerProcess() {
  if (broker_ == nullptr) return;
  Broker::Beside none;
  (void)broker_->serve(request_of(Op::kForget, worker), &none);
}

std::shared_ptr<Caller> Broker::borrowed(uint32_t entry, const rdma::Peer& peer) {
  return std::make_shared<Caller>(shared_from_this(), entry, peer, false);
}

Caller::~Caller() {
  if (!owned_) return;
  Broker::Beside none;
  (void)broker_->serve(request(Op::kForget), &none);
}

Request Caller::request(Op op) const { return request_of(op, entry_); }

Result<void> Caller::check(const ipc::Sender& sender) const {
  Broker::Beside none;
  Request asked = request(Op::kCheck);
  asked.first = 1;
  asked.sender = sender;
  auto answer = broker_->ask(asked, &none);
  if (!answer) return pass(std::move(answer).error());
  return {};
}

Result<Caller::Opened> Caller::open(bool writable, const ipc::Sender* sender) const {
  Broker::Beside beside;
  Request asked = request(Op::kCheck);
  if (sender != nullptr) {
    asked.first = 1;
    asked.sender = *sender;
  }
  asked.files = writable ? Request::kWritableMemory : Request::kMemory;
  auto answer = broker_->ask(asked, &beside);
  if (!answer) return pass(std::move(answer).error());
  return opened(beside, writable);
}

Result<Fd> Caller::userfaultfd() const {
  Broker::Beside beside;
  Request asked = request(Op::kCheck);
  asked.files = Request::kUserfaultfd;
  auto answer = broker_->ask(asked, &beside);
  if (!answer) return pass(std::move(answer).error());
  return std::move(beside[0]);
}

Result<Broker::Answer> Caller::sockets(Op op, const verbs::Gid& address, uint32_t ifindex,
                                       Broker::Beside* beside, uint32_t count) const {
  Request asked = request(op);
  asked.address = address.bytes;
  asked.which = ifindex;
  asked.first = count;
  return broker_->ask(asked, beside);
}

Result<Fd> Caller::packet_socket(uint32_t ifindex) const {
  Broker::Beside made;
  auto answer = sockets(Op::kPacketSocket, {}, ifindex, &made);
  if (!answer) return pass(std::move(answer).error());
  return std::move(made[0]);
}

Result<Fd> Caller::group_socket(const verbs::Gid& group, uint32_t ifindex) const {
  Broker::Beside made;
  auto answer = sockets(Op::kRoceSockets, group, ifindex, &made);
  if (!answer) return pass(std::move(answer).error());
  return std::move(made[0]);
}

Result<RoceSockets> Caller::roce_sockets(const verbs::Gid& address, uint32_t ifindex) const {
  Broker::Beside made;
  auto answer = sockets(Op::kRoceSockets, address, ifindex, &made);
  if (!answer) return pass(std::move(answer).error());
  return RoceSockets{std::move(made[0]), std::move(made[1]), std::move(made[2])};
}

Result<std::vector<Fd>> Caller::source_sockets(const verbs::Gid& address, uint32_t ifindex,
                                               uint32_t count) const {
  Broker::Beside made;
  auto answer = sockets(Op::kRoceSockets, address, ifindex, &made, count);
  if (!answer) return pass(std::move(answer).error());
  std::vector<Fd> all(count);
  auto next = made.begin();
  for (uint32_t i = 0; i < std::min<uint32_t>(count, verbs::kMostSourcePorts); ++i)
    if ((answer->found >> i & 1) != 0 && next != made.end()) all[i] = std::move(*next++);
  return all;
}

Result<std::vector<Fd>> Caller::take(const std::vector<Wanted>& wanted, base::Duration time,
                                     base::Duration* used) const {
  std::vector<Fd> taken;
  const base::Duration before = *used, begun = base::thread_cpu_time();
  base::Duration of_broker{};
  while (taken.size() < wanted.size()) {
    if (!taken.empty() && *used - before > time)
      return fail(EMFILE, "the time for the search is over");
    Broker::Beside beside;
    Request asked = request(Op::kCheck);
    asked.files = Request::kHeld;
    put_wanted(std::span(wanted).subspan(taken.size()), time, &asked);
    const Answer answer = broker_->serve(asked, &beside);  // an error has the time too
    of_broker += std::chrono::nanoseconds(answer.number);
    *used = before + of_broker + (base::thread_cpu_time() - begun);
    if (answer.error != 0) return fail(answer.error, std::string(get(answer.reason)));
    get_files(asked, answer, beside.begin(), beside.end(), &taken);
  }
  return taken;
}

}  // namespace vrdma::vrdmad
