// Requests: sizes, order, handles, numbers, and timing.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "core/ipc/socket.h"
#include "tests/integration/hostile/attack.h"
#include "tests/integration/hostile/client.h"
#include "tests/integration/hostile/looped.h"

namespace vrdma::hostile {

namespace {

using ipc::Call;

constexpr auto kFirst = static_cast<uint32_t>(Call::kProbe);
constexpr auto kLast = static_cast<uint32_t>(ipc::kLastCall);

void wrong_magic(const Target& target) {
  Client client(target.socket);
  ipc::Request request = request_of(Call::kProbe);
  request.magic = 0xdeadbeef;
  client.send(request);
  expect(client.ended(), "a message with another magic does not end the session");
}

void wrong_version(const Target& target) {
  Client client(target.socket);
  for (const uint32_t version : {0u, ipc::kOldestVersion - 1, ipc::kVersion + 1, ~0u}) {
    ipc::Request request = request_of(Call::kHello);
    request.version = version;
    expect(client.call(request).error == EPROTONOSUPPORT, "another version is not refused");
  }
}

// A client from before an upgrade continues, and changes its version in the middle.
void oldest_version(const Target& target) {
  Looped program(target, false, ipc::kOldestVersion);
  program.write(64);
  expect(program.client.executed(program.qp), "a program of the version before is not served");
  program.client.version = ipc::kVersion;
  program.still_works();
  ipc::Request request = request_of(Call::kResume);
  expect(program.client.call(request).error != 0, "a session is resumed that nobody left");
}

// Only a session's own process may resume it; a child is another process.
void resumed_by_a_stranger(const Target& target) {
  Looped victim(target);
  const pid_t child = ::fork();
  if (child == 0) {
    for (uint32_t session = 0; session < 512; ++session) {
      Client client(target.socket);
      ipc::Request request = request_of(Call::kResume);
      request.resume.session = session == 511 ? ~0u : session;
      if (client.call(request).error != ESTALE) ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  expect(::waitpid(child, &status, 0) == child && status == 0, "another's session is resumed");
  victim.still_works();
}

// The daemon's epoch where the program can write it: in the arena's head, in a token, and the
// marks.
void scribbled_epochs(const Target& target) {
  Looped session(target);
  ipc::QpBlock* const block = session.client.block(session.qp);
  for (uint32_t i = 0; i < 200; ++i) {
    session.client.arena.at<ipc::ArenaHeader>(0)->epoch = i * 0x01000193;
    block->mark = i * 0x01000193;
    block->mark_receive = ~i;
    session.write(64);
    block->token = ipc::token_word(ipc::Token::kAsked, i);
    session.client.ring();
  }
  session.still_works();
}

void wrong_sizes(const Target& target) {
  std::vector<char> bytes(9000);
  ipc::Request request = request_of(Call::kProbe);
  std::memcpy(bytes.data(), &request, sizeof request);
  constexpr size_t kSize = sizeof request;
  for (const size_t size : {1ul, 4ul, 8ul, 88ul, kSize - 1, kSize + 1, 1000ul, 9000ul}) {
    Client client(target.socket);
    client.send(bytes.data(), size);
    expect(client.ended(), "a message that is not as long as it says does not end the session");
  }
}

// Of the same version: a message may be shorter, or longer with zeros, but nothing else.
void other_sizes(const Target& target) {
  std::vector<char> bytes(1000);
  ipc::Request request = request_of(Call::kProbe);
  for (const size_t size : {24ul, 88ul, sizeof request + 8, 1000ul}) {
    Client client(target.socket);
    request.size = static_cast<uint32_t>(size);
    request.sequence = 1;
    std::memcpy(bytes.data(), &request, sizeof request);
    client.send(bytes.data(), size);
    const Answer answer = client.receive();
    expect(answer.came && answer.error == 0, "a message of another size is refused");
  }
  Client client(target.socket);
  bytes[sizeof request] = 1;
  client.send(bytes.data(), bytes.size());
  expect(client.ended(), "unknown fields are taken");
  Client probing(target.socket);
  request = request_of(Call::kProbe);
  request.bytes[0] = 1;  // it has none
  expect(probing.call(request).error == E2BIG, "an unknown field of a call is taken");
}

// Version 3 had messages without a size: such a client gets a refusal in a reply that it
// understands.
void before_sizes(const Target& target) {
  Client client(target.socket);
  std::array<uint32_t, 44> request{ipc::kMagic, 3, static_cast<uint32_t>(Call::kResume), 7};
  client.send(request.data(), sizeof request);
  std::array<uint32_t, 64> reply{};
  std::vector<base::Fd> none;
  expect(ipc::receive_message(client.fd(), reply.data(), sizeof reply, &none).has_value(),
         "a client of version 3 gets no answer that it takes");
  expect(reply[0] == ipc::kMagic && reply[2] == 7 && reply[3] == EPROTONOSUPPORT,
         "a client of version 3 is not refused");
}

void no_hello(const Target& target) {
  Client client(target.socket);
  for (uint32_t call = 0; call <= kLast + 5; ++call) {
    if (call == kFirst || call == static_cast<uint32_t>(Call::kHello)) continue;
    const Answer answer = client.call(static_cast<Call>(call));
    const int refusal = static_cast<Call>(call) == Call::kResume ? ESTALE : ENOTCONN;
    expect(answer.came && answer.error == refusal,
           "call " + std::to_string(call) + " is answered without kHello");
  }
}

void hello_twice(const Target& target) {
  Client client(target.socket);
  client.open();
  ipc::Request request = request_of(Call::kHello);
  expect(client.call(request).error == EISCONN, "a second kHello is not refused");
  client.alloc_pd();
}

void wrong_challenge(const Target& target) {
  const uint64_t place = 42;
  for (const uint64_t addr : {reinterpret_cast<uint64_t>(&place), uint64_t{0}, ~uint64_t{0},
                              uint64_t{1} << 63, uint64_t{1} << 47}) {
    Client client(target.socket);
    expect(client.ask_challenge(reinterpret_cast<const void*>(addr)).error == 0, "kHello");
    expect(client.call(Call::kProve).error == EPERM, "a wrong challenge is not refused");
    expect(client.call(Call::kProve).error == ENOTCONN, "a challenge is good for two attempts");
    client.open();  // and may be corrected
  }
}

void three_challenges(const Target& target) {
  Client client(target.socket);
  uint64_t place = 42;
  for (int i = 0; i < 3; ++i) {
    const Answer asked = client.ask_challenge(&place);
    expect(asked.came && asked.error == 0, "kHello");
    place = asked.reply.challenge.challenge + 1;
    expect(client.call(Call::kProve).error == EPERM, "a wrong challenge is not refused");
  }
  expect(client.ended(), "three wrong challenges do not end the connection");
  Client curious(target.socket);
  expect(curious.ask_challenge(&place).error == 0, "kHello");
  expect(curious.ask_challenge(&place).error == EPERM, "a second challenge is given");
}

// A process that obtained another's connection.
void anothers_connection(const Target& target) {
  Client client(target.socket);
  const pid_t child = ::fork();
  if (child == 0) {
    uint64_t place = 0;
    expect(client.ask_challenge(&place).error == EPERM, "another process's socket is not refused");
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  expect(status == 0, "another process says kHello");
  client.open();
}

// The child has a copy of the parent's address space, and the right proof.
void anothers_proof(const Target& target) {
  Client client(target.socket);
  static uint64_t place = 0;
  const Answer asked = client.ask_challenge(&place);
  expect(asked.came && asked.error == 0, "kHello");
  place = asked.reply.challenge.challenge;
  const pid_t child = ::fork();
  if (child == 0) {
    expect(client.call(Call::kProve).error == EPERM, "a proof of another process is taken");
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  expect(status == 0, "another process says kProve");
}

void every_handle(const Target& target) {
  Client other(target.socket), client(target.socket);
  other.open();
  client.open();
  const uint32_t pd = other.alloc_pd(), cq = other.create_cq();
  for (int i = 0; i < 5; ++i) (void)other.create_qp(pd, cq);
  for (const uint32_t handle : {0u, 1u, 2u, 3u, 1000u, 65536u, 1u << 31, ~0u}) {
    for (const Call call : {Call::kDeallocPd, Call::kDeregMr, Call::kDestroyChannel,
                            Call::kDestroyCq, Call::kDestroySrq, Call::kQuerySrq, Call::kQueryQp,
                            Call::kDestroyQp, Call::kDestroyAh, Call::kModifyQp, Call::kModifySrq,
                            Call::kResizeCq, Call::kAttachMcast, Call::kDetachMcast}) {
      const Answer answer = client.call(call, handle);
      expect(answer.came && answer.error == EINVAL,
             "call " + std::to_string(static_cast<uint32_t>(call)) + " takes handle " +
                 std::to_string(handle) + " that is not its own");
    }
    ipc::Request request = request_of(Call::kCreateQp);
    request.create_qp = {handle, handle, handle, handle, 0, 2, 1, 1, 1, 1, 0, 0, {}};
    expect(client.call(request).error == EINVAL, "kCreateQp takes a foreign handle");
    request = request_of(Call::kCreateSrq);
    request.create_srq = {handle, 1, 1, 0, 0};
    expect(client.call(request).error == EINVAL, "kCreateSrq takes a foreign handle");
    request = request_of(Call::kRegMr);
    request.reg_mr = {4096, 4096, 4096, handle, 1, 1, 0};
    expect(client.call(request).error == EINVAL, "kRegMr takes a foreign handle");
    request = request_of(Call::kCreateCq);
    request.create_cq = {handle != 0 ? handle : 9, 1};
    expect(client.call(request).error == EINVAL, "kCreateCq takes a foreign handle");
  }
  // Destroyed ones, and those in use.
  const uint32_t mine = client.alloc_pd(), own_cq = client.create_cq();
  const auto qp = client.create_qp(mine, own_cq);
  expect(client.call(Call::kDeallocPd, mine).error == EBUSY, "a domain in use is destroyed");
  expect(client.call(Call::kDestroyCq, own_cq).error == EBUSY, "a queue in use is destroyed");
  expect(client.call(Call::kDestroyQp, qp.handle).error == 0, "kDestroyQp");
  expect(client.call(Call::kDestroyQp, qp.handle).error == EINVAL, "destroyed twice");
  expect(client.call(Call::kQueryQp, qp.handle).error == EINVAL, "used when destroyed");
}

void huge_numbers(const Target& target) {
  Client client(target.socket);
  client.open();
  const uint32_t pd = client.alloc_pd(), cq = client.create_cq();
  const auto refused = [&](ipc::Request request, const char* what) {
    const Answer answer = client.call(request);
    expect(answer.came && answer.error != 0, std::string(what) + " is not refused");
  };
  for (const uint32_t huge : {32769u, 1u << 24, 1u << 31, ~0u}) {
    for (int field = 0; field < 5; ++field) {
      ipc::Request request = request_of(Call::kCreateQp);
      request.create_qp = {pd, cq, cq, 0, 0, 2, 1, 1, 1, 1, 0, 0, {}};
      uint32_t* fields = &request.create_qp.max_send_wr;
      fields[field] = huge;
      refused(request, "a huge queue pair");
    }
    ipc::Request request = request_of(Call::kCreateSrq);
    request.create_srq = {pd, huge, 1, 0, 0};
    refused(request, "a huge shared queue");
    request.create_srq = {pd, 1, huge, 0, 0};
    refused(request, "a shared queue of huge receives");
  }
  ipc::Request request = request_of(Call::kCreateCq);
  request.create_cq = {0, ~0u};
  refused(request, "a huge completion queue");
  for (const auto& [addr, length] : {std::pair{~0ull, 1ull},
                                     {1ull << 47, 1ull},
                                     {0ull, ~0ull},
                                     {4096ull, 1ull << 47},
                                     {~0ull - 4095, 4096ull}}) {
    request = request_of(Call::kRegMr);
    request.reg_mr = {addr, length, addr, pd, 1, 1, 0};
    refused(request, "a region outside of user space");
    request.reg_mr = {4096, 4096, ~0ull - 100, pd, 1, 1, 0};
    refused(request, "a region that wraps around");
  }
  // As many objects as allowed, until the daemon refuses.
  int made = 0;
  while (made < 200'000 && client.call(Call::kAllocPd).error == 0) ++made;
  expect(made < 200'000, "there is no end of protection domains");
}

void bad_enums(const Target& target) {
  Client client(target.socket);
  client.open();
  const uint32_t pd = client.alloc_pd(), cq = client.create_cq();
  const auto qp = client.create_qp(pd, cq);
  for (const uint32_t value : {0u, 1u, 5u, 8u, 11u, 255u, 256u, 258u, ~0u}) {
    ipc::Request request = request_of(Call::kCreateQp);
    request.create_qp = {pd, cq, cq, 0, 0, value, 1, 1, 1, 1, 0, 0, {}};
    expect(client.call(request).error != 0, "a queue pair of no type " + std::to_string(value));
  }
  for (const uint32_t state : {2u, 3u, 4u, 5u, 7u, 8u, 255u, ~0u})
    expect(client.modify(qp.handle, static_cast<verbs::QpState>(state), 0, {}) == EINVAL,
           "a transition that is none to " + std::to_string(state));
  for (const uint32_t way : {0u, 3u, ~0u}) {
    ipc::Request request = request_of(Call::kRegMr);
    request.reg_mr = {4096, 4096, 4096, pd, 1, way, 0};
    expect(client.call(request).error == EINVAL, "a way that is none");
  }
  for (const uint32_t access : {1u << 8, 1u << 19, 1u << 31, 2u, 8u, ~0u}) {
    ipc::Request request = request_of(Call::kRegMr);
    request.reg_mr = {4096, 4096, 4096, pd, access, 1, 0};
    expect(client.call(request).error != 0, "rights that are none");
  }
  for (uint32_t call = kLast + 1; call < kLast + 1000; ++call)
    expect(client.call(static_cast<Call>(call)).error == EOPNOTSUPP, "a call that is none");
}

// Combined changes of a queue pair: all of them or none.
void changes_together(const Target& target) {
  using namespace verbs;  // NOLINT: names of attributes
  Client client(target.socket);
  client.open();
  const uint32_t pd = client.alloc_pd(), cq = client.create_cq();
  const auto state_of = [&](uint32_t qp) {
    return static_cast<QpState>(client.call(Call::kQueryQp, qp).reply.query_qp.attributes.state);
  };
  QpAttributes init{};
  init.port_num = 1;
  const auto create = [&](QpState state, uint32_t mask) {
    ipc::Request request = request_of(Call::kCreateQp);
    request.create_qp = {pd, cq, cq, 0, 0, 2, 1, 1, 1, 1, 0, mask, init};
    request.create_qp.init.state = static_cast<uint32_t>(state);
    return client.call(request);
  };
  constexpr uint32_t kInit = kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags;
  expect(create(QpState::kRts, kInit).error == EINVAL, "created in RTS");
  expect(create(QpState::kInit, kInit | kQpAv).error == EINVAL, "INIT with an address");
  expect(create(QpState::kInit, kInit & ~kQpPort).error == EINVAL, "INIT without a port");
  const ipc::CreateQpReply qp = create(QpState::kInit, kInit).reply.create_qp;
  expect(state_of(qp.handle) == QpState::kInit, "not created in INIT");
  expect(qp.handle == 1, "what could not be moved to INIT is still there");

  ipc::Request both = request_of(Call::kModifyQp);
  QpAttributes& to = both.modify_qp.attributes;
  const Answer gids = client.call(Call::kQueryGids);
  std::memcpy(to.av.dgid, gids.reply.gids.gids[0], sizeof to.av.dgid);
  to.av.is_global = to.av.port_num = 1;
  to.path_mtu = 5;
  to.dest_qpn = qp.qpn;
  to.timeout = 14;
  constexpr uint32_t kRtr =
      kQpState | kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer;
  constexpr uint32_t kRts =
      kQpState | kQpSqPsn | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic;
  both.modify_qp.handle = qp.handle;
  for (uint32_t& peer : both.modify_qp.known_peers) peer = 1;  // these do not exist
  const auto change = [&](QpState state, uint32_t mask, uint32_t rts_mask) {
    to.state = static_cast<uint32_t>(state);
    both.modify_qp.mask = mask;
    both.modify_qp.rts_mask = rts_mask;
    return client.call(both).error;
  };
  expect(change(QpState::kRtr, kRtr, kRts & ~kQpTimeout) == EINVAL, "RTS without a timeout");
  expect(change(QpState::kRtr, kRtr, kRts | kQpAv) == EINVAL, "RTS with an address");
  expect(change(QpState::kErr, kQpState, kRts) == EINVAL, "to ERR and RTS");
  to.timeout = 32;
  expect(change(QpState::kRtr, kRtr, kRts) == EINVAL, "RTS with a timeout that is none");
  expect(state_of(qp.handle) == QpState::kInit, "half of what was refused was done");
  to.timeout = 14;
  expect(change(QpState::kRtr, kRtr, kRts) == 0 && state_of(qp.handle) == QpState::kRts,
         "not moved to RTS");

  // A request that wants no reply gets none, whatever it is.
  ipc::Request fail = request_of(Call::kModifyQp);
  fail.modify_qp.handle = qp.handle;
  fail.modify_qp.mask = kQpState;
  fail.modify_qp.attributes.state = static_cast<uint32_t>(QpState::kErr);
  client.send(&fail, sizeof fail);
  for (uint32_t call = 0; call <= kLast; ++call) {
    if (static_cast<Call>(call) == Call::kGoodbye) continue;
    ipc::Request request = request_of(static_cast<Call>(call));
    client.send(&request, sizeof request);
  }
  const Answer answer = client.call(Call::kQueryQp, qp.handle);
  expect(answer.came && answer.error == 0 &&
             answer.reply.query_qp.attributes.state == static_cast<uint32_t>(QpState::kErr),
         "what was not to be answered is answered, or not done");
}

void random_requests(const Target& target) {
  Random random(target.seed);
  const auto number = [&]() -> uint32_t {
    switch (random() % 4) {
      case 0:
        return random();
      case 1:
        return random() % 70'000;
      default:
        return random() % 6;
    }
  };
  for (int round = 0; round < 20; ++round) {
    Client client(target.socket);
    client.open();
    for (int i = 0; i < 500; ++i) {
      ipc::Request request = request_of(static_cast<Call>(random() % (kLast + 2)));
      for (size_t at = 0; at < sizeof request.bytes; at += sizeof(uint32_t)) {
        const uint32_t value = number();
        std::memcpy(request.bytes + at, &value, sizeof value);
      }
      if (request.call == Call::kGoodbye && random() % 20 != 0) continue;
      const bool goodbye = request.call == Call::kGoodbye;
      const Answer answer = client.call(request);
      expect(answer.came, "a request is not answered");
      if (goodbye) break;
    }
  }
}

void closing_in_the_middle(const Target& target) {
  Random random(target.seed);
  for (int i = 0; i < 1000; ++i) {
    Client client(target.socket);
    if (i % 3 == 0) continue;
    if (i % 10 == 1) {
      client.open();
      client.alloc_pd();
    }
    ipc::Request request = request_of(static_cast<Call>(random() % (kLast + 1)));
    client.send(request);
  }
}

void replies_that_nobody_reads(const Target& target) {
  Client client(target.socket);
  client.open();
  ::fcntl(client.fd(), F_SETFL, O_NONBLOCK);
  for (int i = 0; i < 100'000 && !client.ended(0); ++i) {
    ipc::Request request = request_of(Call::kQueryDevice);
    client.send(request);
  }
  expect(client.ended(), "a client that reads nothing is served for ever");
}

// Of those that say nothing, the oldest end; those that speak in time are answered.
void many_connections(const Target& target) {
  constexpr size_t kAll = 900, kSilent = 60;
  std::vector<Client> clients;
  clients.reserve(kAll);
  for (size_t i = 0; i < kAll; ++i) clients.emplace_back(target.socket);
  expect(clients.front().ended(), "as many as like may say nothing");
  for (size_t i = kAll - kSilent; i < kAll; i += 9)
    expect(clients[i].call(Call::kProbe).came, "one of many is not answered");
}

// Connections that never prove their identity: the oldest are closed for new ones.
void strangers_without_end(const Target& target) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  Client known(target.socket);
  known.open();
  std::vector<Client> clients;
  clients.reserve(1500);
  while (clients.size() < 1500) clients.emplace_back(target.socket);
  expect(clients.front().ended(), "strangers may be any number");
  expect(clients.back().call(Call::kProbe).came, "the last of many strangers is not answered");
  known.alloc_pd();
}

void many_sessions(const Target& target) {
  std::vector<Client> clients;
  clients.reserve(20'000);
  int error = 0;
  while (error == 0 && clients.size() < 900) {
    clients.emplace_back(target.socket);
    const Answer answer = clients.back().hello();
    clients.back().arena.reset();  // not to exhaust our own address space
    error = answer.came ? answer.error : EIO;
  }
  // The quota, or the tenant's share of the worker's descriptors.
  expect(error == ENOMEM || error == ENFILE || error == 0,
         std::string("sessions end otherwise than by quota: ") + std::strerror(error));
}

}  // namespace

std::vector<Attack> message_attacks() {
  return {{"wrong_magic", wrong_magic},
          {"wrong_version", wrong_version},
          {"oldest_version", oldest_version},
          {"resumed_by_a_stranger", resumed_by_a_stranger},
          {"scribbled_epochs", scribbled_epochs},
          {"wrong_sizes", wrong_sizes},
          {"no_hello", no_hello},
          {"hello_twice", hello_twice},
          {"other_sizes", other_sizes},
          {"before_sizes", before_sizes},
          {"wrong_challenge", wrong_challenge},
          {"three_challenges", three_challenges},
          {"anothers_proof", anothers_proof},
          {"anothers_connection", anothers_connection},
          {"every_handle", every_handle},
          {"huge_numbers", huge_numbers},
          {"bad_enums", bad_enums},
          {"changes_together", changes_together},
          {"random_requests", random_requests},
          {"closing_in_the_middle", closing_in_the_middle},
          {"replies_that_nobody_reads", replies_that_nobody_reads},
          {"many_connections", many_connections},
          {"strangers_without_end", strangers_without_end},
          {"many_sessions", many_sessions}};
}

}  // namespace vrdma::hostile
