// Objects of others: queue pairs, datagram services, groups, domains, imported objects.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>

#include "core/ipc/socket.h"
#include "tests/integration/hostile/attack.h"
#include "tests/integration/hostile/client.h"
#include "tests/integration/hostile/looped.h"

namespace vrdma::hostile {

namespace {

using base::Fd;
using ipc::Call;
using verbs::Opcode;
using verbs::QpState;
using verbs::QpType;

using Gid = std::array<uint8_t, 16>;
constexpr Gid kVictim{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};  // of the same fabric

Gid own_gid(Client& client) {
  const Answer gids = client.call(Call::kQueryGids);
  expect(gids.came && gids.reply.gids.count > 0, "kQueryGids");
  Gid gid{};
  std::memcpy(gid.data(), gids.reply.gids.gids[0], gid.size());
  return gid;
}

// RESET -> RTS towards a peer that does not connect back, or does not exist. Gives up after one
// try, or after the most possible.
void aim(Client& client, const ipc::CreateQpReply& qp, const Gid& dgid, uint32_t qpn,
         bool patient = false) {
  verbs::QpAttributes to{};
  to.port_num = to.av.port_num = to.av.is_global = 1;
  to.access_flags = verbs::kRemoteWrite | verbs::kRemoteRead | verbs::kRemoteAtomic;
  to.path_mtu = 5;
  to.dest_qpn = qpn;
  std::memcpy(to.av.dgid, dgid.data(), dgid.size());
  to.max_rd_atomic = to.max_dest_rd_atomic = to.min_rnr_timer = to.timeout = 1;
  to.retry_cnt = to.rnr_retry = patient ? 7 : 0;
  client.to_rts(qp, QpType::kRc, to);
}

// A queue pair with another peer receives nothing from this one, whatever number, key and address
// it uses.
void anothers_queue_pair(const Target& target) {
  Looped victim(target);
  const auto map =
      base::Mapping::shared(victim.client.memory_fd, 4096, Looped::kAddr, PROT_READ | PROT_WRITE);
  std::memset(map->bytes(), 0x11, 64);
  victim.client.post_receive(victim.qp, {victim.data()});
  Client client(target.socket);
  client.open();
  const uint32_t pd = client.alloc_pd(), cq = client.create_cq();
  const auto mr = client.reg_mr(pd, 1u << 22, 4096, ipc::Way::kInPlace);
  for (const Opcode opcode : {Opcode::kRdmaWrite, Opcode::kRdmaWriteWithImm, Opcode::kSend,
                              Opcode::kRdmaRead, Opcode::kFetchAdd, Opcode::kCompareSwap}) {
    const auto qp = client.create_qp(pd, cq);
    aim(client, qp, own_gid(client), victim.qp.qpn);
    ipc::SendWqe wqe = victim.wqe(opcode);
    client.post(qp, wqe, {{1u << 22, 8, mr.key}});
    expect(client.executed(qp), "a message to a queue pair of others stands still");
    expect(client.last_result(qp).status == static_cast<uint32_t>(verbs::WcStatus::kRetryExceeded),
           "a queue pair of others answers");
    expect(client.call(Call::kDestroyQp, qp.handle).error == 0, "kDestroyQp");
  }
  for (int i = 0; i < 64; ++i) expect(map->bytes()[i] == 0x11, "memory of others was written");
  victim.write(64);
  expect(victim.client.executed(victim.qp) && victim.client.last_result(victim.qp).status == 0,
         "a queue pair was disturbed by one that named it");
}

// Both sides make a link: the other side names this one, which does not connect back; the other
// side is not stuck.
void a_peer_that_comes_and_goes(const Target& target) {
  Client one(target.socket), other(target.socket);
  one.open();
  other.open();
  const uint32_t pd = one.alloc_pd(), cq = one.create_cq();
  const uint32_t other_pd = other.alloc_pd(), other_cq = other.create_cq();
  const Gid gid = own_gid(one);
  const auto mr = one.reg_mr(pd, 1u << 20, 4096, ipc::Way::kInPlace);
  const auto qp = one.create_qp(pd, cq);
  for (int i = 0; i < 200; ++i) {
    const auto peer = other.create_qp(other_pd, other_cq);
    aim(one, qp, gid, peer.qpn);
    if (i % 2 == 0) aim(other, peer, gid, qp.qpn);
    ipc::SendWqe wqe{};
    wqe.opcode = static_cast<uint8_t>(Opcode::kSend);
    wqe.num_sge = 1;
    one.post(qp, wqe, {{1u << 20, 64, mr.key}});
    if (i % 3 == 0) (void)other.modify(peer.handle, QpState::kErr, 0, {});
    (void)other.call(Call::kDestroyQp, peer.handle);
    expect(one.executed(qp), "a message to who has gone stands still");
    expect(one.modify(qp.handle, QpState::kReset, 0, {}) == 0, "RESET");
  }
}

// Datagrams to every number that may be another's queue pair, the special ones first.
void scanned_numbers(const Target& target) {
  Random random(target.seed);
  Client client(target.socket);
  client.open();
  const uint32_t pd = client.alloc_pd(), cq = client.create_cq();
  const auto mr = client.reg_mr(pd, 1u << 20, 4096, ipc::Way::kInPlace);
  const auto qp = client.create_qp(pd, cq, ipc::kNoObject, QpType::kUd);
  client.loop(qp, QpType::kUd);
  for (uint32_t i = 0; i < 5000; ++i) {
    ipc::SendWqe wqe{};
    wqe.opcode = static_cast<uint8_t>(Opcode::kSend);
    wqe.num_sge = 1;
    std::memcpy(wqe.ud.dgid, kVictim.data(), kVictim.size());
    wqe.ud.qpn = i < 16 ? i : random() & verbs::kQpnMask;
    wqe.ud.qkey = i % 3 == 0 ? 0x80010000 : i % 3 == 1 ? 0x11111111 : 0;  // of QP1, a common one
    while (client.block(qp)->sq_head - client.block(qp)->sq_tail >= 60)
      expect(client.executed(qp), "datagrams stand still");
    client.post(qp, wqe, {{1u << 20, 256, mr.key}});
  }
  expect(client.executed(qp), "datagrams stand still");
}

// To no one, to itself by other names, to all.
void odd_destinations(const Target& target) {
  Client client(target.socket);
  client.open();
  const uint32_t pd = client.alloc_pd(), cq = client.create_cq();
  const auto mr = client.reg_mr(pd, 1u << 20, 4096, ipc::Way::kInPlace);
  const Gid zero{}, all{0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
      loopback{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1},
      elsewhere{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 8, 7};
  for (const Gid& gid : {zero, all, loopback, elsewhere, kVictim})
    for (const uint32_t qpn : {0u, 1u, 2u, 0xffffffu}) {
      const auto qp = client.create_qp(pd, cq);
      aim(client, qp, gid, qpn);
      ipc::SendWqe wqe{};
      wqe.opcode = static_cast<uint8_t>(Opcode::kRdmaWrite);
      wqe.num_sge = 1;
      wqe.rdma.rkey = mr.key;
      client.post(qp, wqe, {{1u << 20, 64, mr.key}});
      expect(client.executed(qp) && client.last_result(qp).status ==
                                        static_cast<uint32_t>(verbs::WcStatus::kRetryExceeded),
             "somebody answers at an address that is nobody's");
      (void)client.call(Call::kDestroyQp, qp.handle);
    }
}

// Two hundred queues that retry without limit, as often as possible.
void silent_peers(const Target& target) {
  Client client(target.socket);
  client.open();
  const uint32_t pd = client.alloc_pd(), cq = client.create_cq();
  const auto mr = client.reg_mr(pd, 1u << 20, 4096, ipc::Way::kInPlace);
  for (int i = 0; i < 200; ++i) {
    const auto qp = client.create_qp(pd, cq);
    aim(client, qp, kVictim, 0x4321, true);
    ipc::SendWqe wqe{};
    wqe.opcode = static_cast<uint8_t>(Opcode::kSend);
    wqe.num_sge = 1;
    for (int k = 0; k < 60; ++k) client.post(qp, wqe, {{1u << 20, 64, mr.key}});
  }
  ::usleep(500'000);
}

void groups(const Target& target) {
  Client client(target.socket), other(target.socket);
  client.open();
  other.open();
  const uint32_t pd = client.alloc_pd(), cq = client.create_cq();
  const auto qp = client.create_qp(pd, cq, ipc::kNoObject, QpType::kUd);
  const auto rc = client.create_qp(pd, cq);
  ipc::Request request = request_of(Call::kAttachMcast);
  request.mcast.qp = rc.handle;
  request.mcast.gid[0] = 0xff;
  expect(client.call(request).error != 0, "a connected queue pair joins a group");
  request.mcast = {qp.handle, 0, 0, {}};
  expect(client.call(request).error == EINVAL, "a group whose address is none");
  request.mcast.gid[0] = 0xff;
  ipc::Request leave = request;
  leave.call = Call::kDetachMcast;
  expect(client.call(leave).error != 0, "a group is left that was not joined");
  int error = 0;
  uint32_t joined = 0;
  for (; joined < 100'000 && error == 0; ++joined) {
    std::memcpy(request.mcast.gid + 8, &joined, sizeof joined);
    error = client.call(request).error;
  }
  expect(error == ENOMEM, "groups without end");
}

// All queue pairs in one group, none with a receive, and endless datagrams.
void a_flooded_group(const Target& target) {
  Client client(target.socket);
  client.open();
  const uint32_t pd = client.alloc_pd(), cq = client.create_cq();
  const auto mr = client.reg_mr(pd, 1u << 20, 4096, ipc::Way::kInPlace);
  ipc::Request request = request_of(Call::kAttachMcast);
  request.mcast.gid[0] = 0xff;
  request.mcast.gid[1] = 0x0e;
  ipc::CreateQpReply qp{};
  for (int i = 0; i < 50; ++i) {
    qp = client.create_qp(pd, cq, ipc::kNoObject, QpType::kUd);
    client.loop(qp, QpType::kUd);
    request.mcast.qp = qp.handle;
    expect(client.call(request).error == 0, "kAttachMcast");
  }
  ipc::SendWqe wqe{};
  wqe.opcode = static_cast<uint8_t>(Opcode::kSend);
  wqe.num_sge = 1;
  std::memcpy(wqe.ud.dgid, request.mcast.gid, 16);
  wqe.ud.qpn = verbs::kMulticastQpn;
  for (int i = 0; i < 5000; ++i) {
    while (client.block(qp)->sq_head - client.block(qp)->sq_tail >= 60)
      expect(client.executed(qp), "datagrams to a group stand still");
    client.post(qp, wqe, {{1u << 20, 1024, mr.key}});
  }
}

void opened_by_number(const Target& target) {
  Random random(target.seed);
  Client client(target.socket);
  client.open();
  const uint32_t xrcd = client.call(Call::kOpenXrcd).reply.handle.handle;
  Looped victim(target);
  for (int i = 0; i < 2000; ++i) {
    ipc::Request request = request_of(Call::kOpenQp);
    request.open_qp = {xrcd, i == 0 ? victim.qp.qpn : random() & verbs::kQpnMask};
    expect(client.call(request).error != 0, "a queue pair of no domain of ours is opened");
  }
}

// A file may name a domain; with other files than regular ones the daemon does not block.
void domains_of_odd_files(const Target& target) {
  Client client(target.socket);
  client.open();
  std::array<char, 32> fifo{"/tmp/vrdma-hostile-XXXXXX"};
  expect(::mkdtemp(fifo.data()) != nullptr, "mkdtemp");
  const std::string path = std::string(fifo.data()) + "/fifo";
  expect(::mkfifo(path.c_str(), 0600) == 0, "mkfifo");
  std::array<int, 2> pair{};
  expect(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) == 0, "socketpair");
  std::vector<Fd> files;
  files.emplace_back(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  files.emplace_back(::open(fifo.data(), O_RDONLY | O_CLOEXEC));
  files.emplace_back(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  files.emplace_back(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  files.emplace_back(::open("/", O_PATH | O_CLOEXEC));
  files.emplace_back(static_cast<int>(::memfd_create("odd", MFD_CLOEXEC)));
  files.emplace_back(pair[0]);
  files.emplace_back(pair[1]);
  files.push_back(*client.arena_fd.duplicate());
  for (const Fd& file : files) {
    if (!file.valid()) continue;
    ipc::Request request = request_of(Call::kOpenXrcd);
    request.open_xrcd = {1, O_CREAT};
    const Answer answer = client.call(request, {file.get()});
    expect(answer.came, "a strange file ends the session or keeps it waiting");
    request.open_xrcd = {0, O_CREAT};
    expect(client.call(request, {file.get()}).came, "a file too many ends the session");
    request.open_xrcd = {1, ~0u};
    expect(client.call(request).error != 0, "a domain of no file");
  }
  ::unlink(path.c_str());
  ::rmdir(fifo.data());
}

// A file that claims to be another's queue arena.
void imported_by_guess(const Target& target) {
  Looped victim(target);
  Client client(target.socket);
  client.open();
  const Fd forged(
      static_cast<int>(::memfd_create("vrdma-queues", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  expect(::ftruncate(forged.get(), static_cast<off_t>(ipc::kQueueArenaSize)) == 0, "ftruncate");
  ipc::ArenaHeader header{};
  header.magic = ipc::kArenaMagic;
  std::memcpy(header.vdevice, "va", 3);
  expect(::pwrite(forged.get(), &header, sizeof header, 0) == sizeof header, "pwrite");
  (void)::fcntl(forged.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  ipc::Request request = request_of(Call::kImportDevice);
  expect(client.call(request, {forged.get()}).error != 0, "a forged arena is imported");
  expect(client.call(request, {client.bell_fd.get()}).error != 0, "a bell file is imported");
  expect(client.call(request, {client.memory_fd.get()}).error != 0, "a memory arena is imported");
  for (const uint32_t handle : {0u, 1u, victim.mr.handle, ~0u}) {
    request = request_of(Call::kImportMr);
    request.import_mr = {client.alloc_pd(), handle};
    expect(client.call(request).error == EINVAL, "a region of nobody is imported");
    expect(client.call(Call::kImportPd, handle).error == EINVAL || handle == 1,
           "a domain of nobody is imported");
  }
}

// The exporter dies while the imported objects are written to.
void imports_of_the_dead(const Target& target) {
  for (int round = 0; round < 10; ++round) {
    const auto ends = ipc::make_socket_pair().value();
    struct Offer {
      uint32_t pd, mr;
    } offer{};
    const pid_t exporter = ::fork();
    if (exporter == 0) {
      Looped own(target);
      offer = {own.pd, own.mr.handle};
      (void)ipc::send_message(ends.second.get(), &offer, sizeof offer, {own.client.arena_fd.get()});
      ::pause();
    }
    std::vector<Fd> fds;
    expect(ipc::receive_message(ends.first.get(), &offer, sizeof offer, &fds).has_value() &&
               fds.size() == 1,
           "an exporter");
    Looped it(target);
    ipc::Request request = request_of(Call::kImportDevice);
    if (it.client.call(request, {fds[0].get()}).error == 0) {
      const Answer pd = it.client.call(Call::kImportPd, offer.pd);
      request = request_of(Call::kImportMr);
      request.import_mr = {pd.reply.handle.handle, offer.mr};
      const Answer mr = it.client.call(request);
      const auto qp = it.client.create_qp(pd.reply.handle.handle, it.cq);
      it.client.loop(qp);
      ipc::SendWqe wqe = it.wqe(Opcode::kRdmaWrite);
      wqe.rdma.rkey = mr.reply.reg_mr.key;
      for (int i = 0; i < 60; ++i) {
        if (i == 30) ::kill(exporter, SIGKILL);
        it.client.post(qp, wqe, {{Looped::kAddr, 65536, mr.reply.reg_mr.key}});
      }
      expect(it.client.settled(qp), "work on what the dead exported stands still");
    }
    ::kill(exporter, SIGKILL);
    it.still_works();
  }
}

}  // namespace

std::vector<Attack> stranger_attacks() {
  return {{"anothers_queue_pair", anothers_queue_pair},
          {"a_peer_that_comes_and_goes", a_peer_that_comes_and_goes},
          {"scanned_numbers", scanned_numbers},
          {"odd_destinations", odd_destinations},
          {"silent_peers", silent_peers},
          {"groups", groups},
          {"a_flooded_group", a_flooded_group},
          {"opened_by_number", opened_by_number},
          {"domains_of_odd_files", domains_of_odd_files},
          {"imported_by_guess", imported_by_guess},
          {"imports_of_the_dead", imports_of_the_dead}};
}

}  // namespace vrdma::hostile
