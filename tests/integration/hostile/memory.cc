// Keys that the daemon did not write, and memory that hangs.
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/integration/hostile/attack.h"
#include "tests/integration/hostile/client.h"

namespace vrdma::hostile {

namespace {

using base::Fd;
using ipc::Call;
using verbs::Opcode;

// Writes a key into the session's own table: a new one, or an existing one with another meaning.
void forge(Client& client, uint32_t key, uint32_t pd, uint64_t addr, uint64_t length,
           ipc::Way way) {
  ipc::KeyEntry& entry = client.keys()[ipc::slot_of(key)];
  entry.key = key;
  entry.pd = pd;
  entry.access = 15;
  entry.addr = entry.iova = addr;
  entry.length = length;
  entry.way = static_cast<uint32_t>(way);
  entry.sequence.store((entry.sequence.load() | 1) + 1, std::memory_order_release);
}

struct Forger {
  explicit Forger(const Target& target) : client(target.socket) {
    client.open();
    pd = client.alloc_pd();
    qp = client.create_qp(pd, client.create_cq());
    client.loop(qp);
  }
  // WRITE of `length` bytes from one key to another.
  uint32_t write(uint32_t from, uint64_t from_addr, uint32_t to, uint64_t to_addr,
                 uint32_t length) {
    ipc::SendWqe wqe{};
    wqe.opcode = static_cast<uint8_t>(Opcode::kRdmaWrite);
    wqe.num_sge = 1;
    wqe.rdma.remote_addr = to_addr;
    wqe.rdma.rkey = to;
    client.post(qp, wqe, {{from_addr, length, from}});
    expect(client.executed(qp, 20'000), "a queue stands still");
    return client.last_result(qp).status;
  }
  void again() { client.loop_again(qp); }
  Client client;
  uint32_t pd = 0;
  ipc::CreateQpReply qp{};
};

// Unregistered keys, and registered ones that the table describes wrongly: no byte outside the
// registered regions is read or written, neither in place nor by reach.
void forged_keys(const Target& target) {
  Forger it(target);
  constexpr uint64_t kAt = 1u << 20;
  constexpr uint32_t kLength = 4096;
  const uint32_t good = it.client.reg_mr(it.pd, kAt, kLength, ipc::Way::kInPlace).key;
  std::vector<uint64_t> secret(kLength / sizeof(uint64_t), 0x5ec7e7), shown(secret.size(), 0);
  const auto secret_at = reinterpret_cast<uint64_t>(secret.data());
  const uint32_t reached =
      it.client.reg_mr(it.pd, reinterpret_cast<uint64_t>(shown.data()), kLength, ipc::Way::kReached)
          .key;
  const auto refused = [&](uint32_t from, uint64_t from_addr, uint32_t to, uint64_t to_addr,
                           const std::string& what) {
    expect(it.write(from, from_addr, to, to_addr, 64) != 0, what);
    it.again();
  };
  const uint32_t unknown = ipc::key_of(ipc::slot_of(good) ^ 1, 0);
  for (const ipc::Way way : {ipc::Way::kInPlace, ipc::Way::kReached}) {
    for (const uint32_t key : {good, reached, unknown}) {
      forge(it.client, key, it.pd, 0, ipc::kMemoryArenaSize, way);
      for (const uint64_t addr : {secret_at, kAt + kLength, kAt - 64, ipc::kMemoryArenaSize - 64}) {
        refused(key, addr, good, kAt, "memory that was not registered is read");
        refused(good, kAt, key, addr, "memory that was not registered is written");
      }
    }
    for (const uint64_t addr : {ipc::kMemoryArenaSize, uint64_t{1} << 63, ~uint64_t{4096}}) {
      forge(it.client, unknown, it.pd, addr, 4096, way);
      refused(unknown, addr, good, kAt, "memory of the kernel is read");
      refused(good, kAt, unknown, addr, "memory of the kernel is written");
    }
  }
  expect(secret == std::vector<uint64_t>(secret.size(), 0x5ec7e7), "a secret is overwritten");
  // The registered regions are unchanged.
  expect(it.write(good, kAt, reached, reinterpret_cast<uint64_t>(shown.data()), 64) == 0,
         "a key is lost");
}

// Its directory in /proc. Its broker listens, whose parent it is.
std::string daemon(const Client& client) {
  ucred broker{};
  socklen_t length = sizeof broker;
  expect(::getsockopt(client.fd(), SOL_SOCKET, SO_PEERCRED, &broker, &length) == 0, "SO_PEERCRED");
  std::ifstream status("/proc/" + std::to_string(broker.pid) + "/status");
  std::string word, parent;
  while (status >> word && word != "PPid:") {
  }
  expect(static_cast<bool>(status >> parent), "the broker's status cannot be read");
  return "/proc/" + parent;
}

// Kilobytes of shared memory that the daemon holds.
uint64_t shared_by_daemon(const Client& client) {
  std::ifstream status(daemon(client) + "/status");
  uint64_t kilobytes = 0;
  for (std::string word; status >> word;)
    if (word == "RssShmem:" && status >> kilobytes) return kilobytes;
  failed("the daemon's status cannot be read");
}

uint64_t pages_of(const base::Fd& file) {
  struct stat status {};
  expect(::fstat(file.get(), &status) == 0, "fstat");
  return static_cast<uint64_t>(status.st_blocks) * 512 / 4096;
}

// Registered memory in place, with no page present or mapped by its owner: the worker allocates
// none.
void holes(const Target& target) {
  Forger it(target);
  constexpr uint64_t kAt = 1u << 30, kLength = 1u << 30;
  const uint32_t hole = it.client.reg_mr(it.pd, kAt, kLength, ipc::Way::kInPlace).key;
  const uint32_t good = it.client.reg_mr(it.pd, 1u << 20, 1u << 20, ipc::Way::kInPlace).key;
  const uint64_t pages = pages_of(it.client.memory_fd);
  const uint64_t before = shared_by_daemon(it.client);
  for (uint64_t at = 0; at < kLength; at += 4u << 20) {
    expect(it.write(good, 1u << 20, hole, kAt + at, 1u << 20) != 0, "a hole is written to");
    it.again();
    expect(it.write(hole, kAt + at + (1u << 20), good, 1u << 20, 1u << 20) != 0, "a hole is read");
    it.again();
  }
  expect(pages_of(it.client.memory_fd) == pages, "a worker makes pages");
  expect(shared_by_daemon(it.client) < before + (64u << 10), "the daemon holds pages of holes");
}

// If the owner has the memory in its address space, its page tables fill the holes.
void holes_that_are_filled(const Target& target) {
  Forger it(target);
  constexpr uint64_t kLength = 32u << 20;
  void* const place = ::mmap(nullptr, kLength, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto at = reinterpret_cast<uint64_t>(place);
  expect(::mmap(place, kLength, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                it.client.memory_fd.get(), static_cast<off_t>(at)) == place,
         "mmap");
  const uint32_t key = it.client.reg_mr(it.pd, at, kLength, ipc::Way::kInPlace).key;
  auto* const bytes = static_cast<uint8_t*>(place);
  std::memset(bytes, 7, 1u << 20);
  for (int round = 0; round < 20; ++round) {
    expect(::madvise(bytes + (4u << 20), 28u << 20, MADV_REMOVE) == 0, "MADV_REMOVE");
    const uint64_t to = at + (4u << 20) + static_cast<uint64_t>(round) * 4096;
    expect(it.write(key, at, key, to, 1u << 20) == 0, "a hole is not filled");
    expect(bytes[to - at] == 7 && bytes[to - at + (1u << 20) - 1] == 7, "a message is lost");
    expect(it.write(key, at + (20u << 20), key, at + (2u << 20), 1u << 20) == 0,
           "a hole is not read");
    expect(bytes[(2u << 20) + 5] == 0, "a hole is not zero");
  }
}

// Memory that is unmapped after it was registered.
void keys_of_gone_memory(const Target& target) {
  Forger it(target);
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto addr = reinterpret_cast<uint64_t>(page);
  const uint32_t odd = it.client.reg_mr(it.pd, addr, 4096, ipc::Way::kReached).key;
  const uint32_t good = it.client.reg_mr(it.pd, 1u << 20, 4096, ipc::Way::kInPlace).key;
  expect(it.write(odd, addr, good, 1u << 20, 64) == 0, "memory that is there is not read");
  ::munmap(page, 4096);
  expect(it.write(odd, addr, good, 1u << 20, 64) != 0, "memory that is not there is read");
  it.again();
  expect(it.write(good, 1u << 20, odd, addr, 64) != 0, "memory that is not there is written");
}

// Whether the daemon has a file that can write this process's memory; none if this process cannot
// see that.
std::optional<bool> daemon_may_write(const Client& client) {
  const std::string mem = "/proc/" + std::to_string(::getpid()) + "/mem";
  const std::string its = daemon(client);
  std::error_code error;
  bool found = false;
  for (const auto& entry : std::filesystem::directory_iterator(its + "/fd", error)) {
    if (std::filesystem::read_symlink(entry.path(), error) != mem) continue;
    found = true;
    std::ifstream info(its + "/fdinfo/" + entry.path().filename().string());
    std::string word;
    while (info >> word && word != "flags:") {
    }
    int flags = 0;
    info >> std::oct >> flags;
    if ((flags & O_ACCMODE) != O_RDONLY) return true;
  }
  if (!found) return std::nullopt;
  return false;
}

// Memory with fewer rights for the process than its registration claims.
void memory_that_does_not_permit(const Target& target) {
  constexpr uint32_t kToRead = 0, kToWrite = verbs::kLocalWrite | verbs::kRemoteWrite;
  Forger it(target);
  auto* pages = static_cast<uint8_t*>(
      ::mmap(nullptr, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ::mprotect(pages + 4096, 4096, PROT_READ);
  ::mprotect(pages + 2 * 4096, 4096, PROT_NONE);
  ::munmap(pages + 3 * 4096, 4096);
  expect(!daemon_may_write(it.client).value_or(false), "the daemon can write before it has to");
  const auto answer = [&](Call call, uint32_t page, uint64_t length, uint32_t access) {
    static const uint32_t handle =
        it.client.reg_mr(it.pd, 1u << 20, 4096, ipc::Way::kInPlace).handle;
    const auto addr = reinterpret_cast<uint64_t>(pages + page * 4096);
    ipc::Request request = request_of(call);
    const ipc::RegMrRequest region{
        addr, length, addr, it.pd, access, static_cast<uint32_t>(ipc::Way::kReached), 0};
    if (call == Call::kRegMr) request.reg_mr = region;
    if (call == Call::kReregMr) request.rereg_mr = {handle, 0, region};
    const Answer got = it.client.call(request);
    return got.came ? static_cast<int>(got.error) : -1;
  };
  for (const Call call : {Call::kRegMr, Call::kReregMr}) {
    expect(answer(call, 0, 4096, kToWrite) == 0, "memory to write is refused");
    expect(answer(call, 0, 2 * 4096, kToRead) == 0, "memory to read is refused");
    expect(answer(call, 0, 4097, kToWrite) == EFAULT, "memory to read is registered to write");
    expect(answer(call, 2, 4096, kToRead) == EFAULT, "memory of nobody is registered to read");
    expect(answer(call, 3, 4096, kToRead) == EFAULT, "memory that is not is registered");
    expect(daemon_may_write(it.client).value_or(true), "the daemon cannot write what it has to");
  }
}

// A page whose access hangs; nullptr if this host has none.
void* silent_page(const SilentFile& file) {
  Fd fd(::open(file.path.c_str(), O_RDWR | O_CLOEXEC));
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd.get(), 0);
  expect(page != MAP_FAILED, std::string("map a FUSE file: ") + std::strerror(errno));
  fd.reset();
  file.silence();
  return page;
}

// A page of a userfaultfd without a server.
void* unserved_page() {
  static Fd faults;
  faults = Fd(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY)));
  const Fd other(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC)));
  if (other.valid()) faults = *other.duplicate();
  if (!faults.valid()) return nullptr;
  uffdio_api api{};
  api.api = UFFD_API;
  ::ioctl(faults.get(), UFFDIO_API, &api);
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uffdio_register range{};
  range.range = {reinterpret_cast<uint64_t>(page), 4096};
  range.mode = UFFDIO_REGISTER_MODE_MISSING;
  if (::ioctl(faults.get(), UFFDIO_REGISTER, &range) != 0) return nullptr;
  return page;
}

void challenge_on(const Target& target, void* page) {
  if (page == nullptr) return;
  Client client(target.socket);
  expect(client.ask_challenge(page).error == 0, "kHello");
  ipc::Request request = request_of(Call::kProve);
  client.send(request);
  const Answer answer = client.receive(1000);
  expect(!answer.came || answer.error == EPERM, "a challenge that is not there is found");
  // A request before the reply violates the protocol.
  if (answer.came) return;
  client.send(request);
  expect(client.ended(), "an impatient client is not ended");
}

void reached_on(const Target& target, void* page) {
  if (page == nullptr) return;
  Client client(target.socket);
  client.open();
  const uint32_t pd = client.alloc_pd();
  const auto qp = client.create_qp(pd, client.create_cq());
  client.loop(qp);
  const auto addr = reinterpret_cast<uint64_t>(page);
  const auto silent = client.reg_mr(pd, addr, 4096, ipc::Way::kReached);
  const auto good = client.reg_mr(pd, 1u << 20, 4096, ipc::Way::kInPlace);
  ipc::SendWqe wqe{};
  wqe.opcode = static_cast<uint8_t>(Opcode::kRdmaWrite);
  wqe.num_sge = 1;
  wqe.rdma.remote_addr = 1u << 20;
  wqe.rdma.rkey = good.key;
  client.post(qp, wqe, {{addr, 64, silent.key}});
  (void)client.executed(qp, 300);
  ipc::Request request = request_of(Call::kDeregMr);
  request.handle.handle = silent.handle;
  client.send(request);
  const Answer answer = client.receive(500);
  if (answer.came) return;  // it failed at once
  client.send(request);
  expect(client.ended(), "an impatient client is not ended");
}

void challenge_without_answer(const Target& target) {
  challenge_on(target, unserved_page());
  const SilentFile file = make_silent_file();
  if (!file.path.empty()) challenge_on(target, silent_page(file));
}

void memory_without_answer(const Target& target) {
  reached_on(target, unserved_page());
  const SilentFile file = make_silent_file();
  if (!file.path.empty()) reached_on(target, silent_page(file));
}

}  // namespace

std::vector<Attack> memory_attacks() {
  return {{"forged_keys", forged_keys},
          {"holes", holes},
          {"holes_that_are_filled", holes_that_are_filled},
          {"keys_of_gone_memory", keys_of_gone_memory},
          {"memory_that_does_not_permit", memory_that_does_not_permit},
          {"challenge_without_answer", challenge_without_answer},
          {"memory_without_answer", memory_without_answer}};
}

}  // namespace vrdma::hostile
