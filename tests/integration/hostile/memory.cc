// Keys that the daemon did not write, and memory that does not answer.
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <string>

#include "tests/integration/hostile/attack.h"
#include "tests/integration/hostile/client.h"

namespace vrdma::hostile {

namespace {

using base::Fd;
using ipc::Call;
using verbs::Opcode;

// A key that the session itself writes into its table.
uint32_t forge(Client& client, uint32_t slot, uint32_t pd, uint64_t addr, uint64_t length,
               ipc::Way way) {
  ipc::KeyEntry& entry = client.keys()[slot];
  entry.key = slot << 8;
  entry.pd = pd;
  entry.access = 15;
  entry.addr = entry.iova = addr;
  entry.length = length;
  entry.way = static_cast<uint32_t>(way);
  entry.sequence.store(2, std::memory_order_release);
  return slot << 8;
}

struct Forger {
  explicit Forger(const Target& target) : client(target.socket) {
    client.open();
    pd = client.alloc_pd();
    qp = client.create_qp(pd, client.create_cq());
    client.loop(qp);
  }
  // WRITE of `length` bytes from one forged key to another.
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

void keys_beyond_user_space(const Target& target) {
  Forger it(target);
  const uint32_t good = forge(it.client, 1, it.pd, 4096, 1u << 30, ipc::Way::kInPlace);
  for (const uint64_t addr : {ipc::kMemoryArenaSize, ipc::kMemoryArenaSize - 8, uint64_t{1} << 63,
                              ~uint64_t{4096}, uint64_t{0xffff800000000000}}) {
    for (const ipc::Way way : {ipc::Way::kInPlace, ipc::Way::kReached}) {
      const uint32_t bad = forge(it.client, 2, it.pd, addr, 4096, way);
      expect(it.write(bad, addr, good, 4096, 64) != 0, "a message from beyond user space");
      it.again();
      expect(it.write(good, 4096, bad, addr, 64) != 0, "a message to beyond user space");
      it.again();
    }
  }
}

// Each write touches another GiB of the memory arena: the daemon's own address space is not used
// up.
void keys_everywhere(const Target& target) {
  Forger it(target);
  const uint32_t all = forge(it.client, 1, it.pd, 0, ipc::kMemoryArenaSize, ipc::Way::kInPlace);
  for (uint64_t i = 0; i < 3000; ++i)
    expect(it.write(all, 8, all, i * 40 * ipc::kWindowSize % ipc::kMemoryArenaSize + i * 8, 8) == 0,
           "a window cannot be mapped");
}

// Memory "in place" of which not a page is there.
void keys_of_holes(const Target& target) {
  Forger it(target);
  const uint32_t all = forge(it.client, 1, it.pd, 0, ipc::kMemoryArenaSize, ipc::Way::kInPlace);
  for (uint64_t i = 0; i < 40; ++i)
    (void)it.write(all, i << 32, all, (i << 32) + (1u << 30), 65536);
}

// Memory of the kernel's that is in /proc/PID/mem, but is nobody's to write.
void keys_of_odd_memory(const Target& target) {
  Forger it(target);
  void* gone = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ::munmap(gone, 4096);
  for (const uint64_t addr : {uint64_t{0}, reinterpret_cast<uint64_t>(gone)}) {
    const uint32_t odd = forge(it.client, 1, it.pd, addr, 4096, ipc::Way::kReached);
    const uint32_t good = forge(it.client, 2, it.pd, 1u << 20, 4096, ipc::Way::kInPlace);
    expect(it.write(odd, addr, good, 1u << 20, 64) != 0, "memory that is not there is read");
    it.again();
    expect(it.write(good, 1u << 20, odd, addr, 64) != 0, "memory that is not there is written");
    it.again();
  }
}

// A page that hangs whoever touches it; nullptr if there can be none here.
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

void cookie_on(const Target& target, void* page) {
  if (page == nullptr) return;
  Client client(target.socket);
  ipc::Request request = request_of(Call::kHello);
  request.hello.cookie_addr = reinterpret_cast<uint64_t>(page);
  request.hello.cookie = 7;
  client.send(request);
  const Answer answer = client.receive(1000);
  expect(!answer.came || answer.error == EPERM, "a cookie that is not there is found");
  // Who asks before he was answered is no client of ours.
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

void cookie_without_answer(const Target& target) {
  cookie_on(target, unserved_page());
  const SilentFile file = make_silent_file();
  if (!file.path.empty()) cookie_on(target, silent_page(file));
}

void memory_without_answer(const Target& target) {
  reached_on(target, unserved_page());
  const SilentFile file = make_silent_file();
  if (!file.path.empty()) reached_on(target, silent_page(file));
}

}  // namespace

std::vector<Attack> memory_attacks() {
  return {{"keys_beyond_user_space", keys_beyond_user_space},
          {"keys_everywhere", keys_everywhere},
          {"keys_of_holes", keys_of_holes},
          {"keys_of_odd_memory", keys_of_odd_memory},
          {"cookie_without_answer", cookie_without_answer},
          {"memory_without_answer", memory_without_answer}};
}

}  // namespace vrdma::hostile
