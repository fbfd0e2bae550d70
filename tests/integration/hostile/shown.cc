// Memory that lies in files of others, as the device of a virtual machine shows it.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "core/ipc/page_table.h"
#include "tests/integration/hostile/attack.h"
#include "tests/integration/hostile/client.h"

namespace vrdma::hostile {

namespace {

using base::Fd;
using ipc::Call;

constexpr uint64_t kPage = ipc::kShownPage, kPages = 16;
constexpr uint64_t kPlace = 0x7e0000000000;  // where this process has no memory

int show(Client& client, const std::vector<int>& fds, size_t files) {
  ipc::Request request = request_of(Call::kShowMemory);
  request.show_memory = {static_cast<uint32_t>(files), 0};
  const Answer answer = client.call(request, fds);
  expect(answer.came, "a session ends because it shows memory");
  return answer.error;
}
int show(Client& client, const std::vector<int>& fds) { return show(client, fds, fds.size()); }

uint64_t pages_of(const Fd& file) {
  struct stat status {};
  expect(::fstat(file.get(), &status) == 0, "fstat");
  return static_cast<uint64_t>(status.st_blocks) * 512 / kPage;
}
void empty(const Fd& file, uint64_t offset, uint64_t size) {
  expect(::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                     static_cast<off_t>(offset), static_cast<off_t>(size)) == 0,
         "punch a hole");
}

// Peers may map the memory of a process that is dumpable. Of a process of root vrdmad cannot tell.
void keep_peers_out() {
  constexpr uid_t kNobody = 65534;
  if (::geteuid() == 0)
    expect(
        ::setresgid(kNobody, kNobody, kNobody) == 0 && ::setresuid(kNobody, kNobody, kNobody) == 0,
        "become nobody");
  expect(::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0, "PR_SET_DUMPABLE");
}

// A session with a region of kPages in place, and a queue pair that is connected to itself.
struct Machine {
  explicit Machine(const Target& target) : client((keep_peers_out(), target.socket)) {
    client.open();
    const uint32_t pd = client.alloc_pd();
    qp = client.create_qp(pd, client.create_cq());
    client.loop(qp);
    mr = client.reg_mr(pd, kPlace, kPages * kPage, ipc::Way::kInPlace);
    empty(client.memory_fd, kPlace, kPages * kPage);  // it has populated the arena there
    entries = base::Mapping::shared(table, ipc::kPageTableSize, 0, PROT_READ | PROT_WRITE).value();
    bytes = base::Mapping::shared(ram, kPages * kPage, 0, PROT_READ | PROT_WRITE).value();
  }
  [[nodiscard]] ipc::PageEntry& entry(uint64_t page) const {
    return entries.at<ipc::PageEntry>(0)[kPlace / kPage + page];
  }
  void enter_all() const {  // the last page first
    for (uint64_t i = 0; i < kPages; ++i) entry(i) = ipc::page_entry(0, kPages - 1 - i);
  }
  // Whether a request from the first half of the region to the second succeeds.
  bool copy(uint64_t length = kPages / 2 * kPage) {
    ipc::SendWqe wqe{};
    wqe.opcode = static_cast<uint8_t>(verbs::Opcode::kRdmaWrite);
    wqe.flags = ipc::kSignaled;
    wqe.num_sge = 1;
    wqe.rdma.rkey = mr.key;
    wqe.rdma.remote_addr = kPlace + kPages / 2 * kPage;
    client.post(qp, wqe, {{kPlace, static_cast<uint32_t>(length), mr.key}});
    expect(client.executed(qp), "a queue does not go on");
    if (client.last_result(qp).status == 0) return true;
    client.loop_again(qp);
    return false;
  }

  Fd ram = base::make_memfd("ram", kPages* kPage).value();
  Fd table = base::make_memfd("table", ipc::kPageTableSize).value();
  base::Mapping entries, bytes;
  Client client;
  ipc::CreateQpReply qp{};
  ipc::RegMrReply mr{};
};

void what_is_no_memory(const Target& target) {
  const Fd ram = base::make_memfd("ram", kPage).value();
  const Fd table = base::make_memfd("table", ipc::kPageTableSize).value();
  {
    Client visible(target.socket);
    visible.open();
    expect(show(visible, {table.get(), ram.get()}) == EPERM,
           "a process whose memory peers may map shows some");
  }
  keep_peers_out();
  Client client(target.socket);
  client.open();
  expect(show(client, {ram.get(), ram.get()}) == EINVAL, "a page table is too short");
  expect(show(client, {}, 2) == EBADF && show(client, {table.get(), ram.get()}, 3) == EBADF &&
             show(client, {table.get(), ram.get()}, 1) == EBADF,
         "a number of files is not theirs");
  Fd event(::eventfd(0, EFD_CLOEXEC)), null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  Fd loose(::memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  expect(::ftruncate(loose.get(), kPage) == 0, "ftruncate");
  for (const int seals : {0, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SHRINK | F_SEAL_GROW}) {
    (void)::fcntl(loose.get(), F_ADD_SEALS, seals);
    for (const Fd* fd : {&event, &null, &loose})
      expect(show(client, {table.get(), fd->get()}) == EBADF, "a file that is no memory is taken");
  }
  const Fd uneven = base::make_memfd("uneven", 100).value();
  expect(show(client, {table.get(), uneven.get()}) == EINVAL, "a part of a page is taken");
  const Fd vast = base::make_memfd("vast", ipc::kMostShownBytes + kPage).value();
  expect(show(client, {table.get(), vast.get()}) == E2BIG, "a file is too large");
  expect(show(client, {table.get(), client.memory_fd.get()}) == E2BIG, "an arena is taken");
  Fd huge(::memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB | MFD_ALLOW_SEALING));
  if (huge.valid() && ::ftruncate(huge.get(), 2 << 20) == 0 &&
      ::fcntl(huge.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
    expect(show(client, {table.get(), huge.get()}) == EINVAL, "huge pages are taken");
  expect(show(client, {table.get(), ram.get()}) == 0, "memory is refused");
  {
    Client second(target.socket);
    const Answer opened = second.hello({client.memory_fd.get()});
    expect(opened.came && opened.error == 0, "a second session");
    expect(show(second, {table.get(), ram.get()}) == EBUSY, "two sessions show memory");
  }
  expect(show(client, {}) == 0, "memory is not given back");
}

// Entries that no correct program writes, and files whose pages go, while requests use them.
void a_table_of_anything(const Target& target) {
  Machine machine(target);
  expect(!machine.copy(), "a region in place that nothing shows");
  expect(show(machine.client, {machine.table.get(), machine.ram.get()}) == 0, "show memory");
  machine.enter_all();
  std::memset(machine.bytes.bytes(), 0, kPages * kPage);
  std::memset(machine.bytes.bytes() + kPages / 2 * kPage, 0x5a, kPages / 2 * kPage);
  expect(machine.copy(), "memory that is shown is not found");
  for (uint64_t i = 0; i < kPages / 2 * kPage; i += 100)
    expect(machine.bytes.bytes()[i] == 0x5a, "memory that is shown is not written");

  Random random(target.seed);
  for (int round = 0; round < 1500; ++round) {
    for (uint64_t i = 0; i < kPages; ++i) {
      const uint32_t what = random() % 8;
      machine.entry(i) = what == 0   ? random()
                         : what == 1 ? ipc::page_entry(random() % 8, random() % (kPages + 2))
                         : what == 2 ? 0
                                     : ipc::page_entry(0, random() % kPages);
    }
    if (random() % 8 == 0) empty(machine.ram, 0, kPages * kPage);
    if (random() % 16 == 0) empty(machine.table, 0, ipc::kPageTableSize);
    (void)machine.copy(1 + random() % (kPages / 2 * kPage));
  }
  // The worker makes no page of either: nobody but this process, which does not, would pay.
  machine.enter_all();
  empty(machine.ram, 0, kPages * kPage);
  expect(!machine.copy() && pages_of(machine.ram) == 0, "the worker makes pages of the memory");
  empty(machine.table, 0, ipc::kPageTableSize);
  expect(!machine.copy() && pages_of(machine.table) == 0, "the worker makes pages of the table");
  // Where this process has the memory, the pages are made in its name.
  machine.enter_all();
  for (uint64_t i = 0; i < kPages; ++i)
    expect(::mmap(reinterpret_cast<void*>(kPlace + i * kPage), kPage, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_FIXED, machine.ram.get(),
                  static_cast<off_t>((kPages - 1 - i) * kPage)) != MAP_FAILED,
           "mmap");
  expect(machine.copy() && pages_of(machine.ram) == kPages, "missing pages are not made");
  machine.bytes.bytes()[kPages * kPage - 1] = 0x77;  // the last byte of the first page
  expect(machine.copy() && machine.bytes.bytes()[kPages / 2 * kPage - 1] == 0x77,
         "memory that was missing is not found");
}

// What was taken away does not change any more.
void memory_that_goes(const Target& target) {
  Machine machine(target);
  machine.enter_all();
  for (int round = 0; round < 50; ++round) {
    expect(show(machine.client, {machine.table.get(), machine.ram.get()}) == 0, "show memory");
    std::memset(machine.bytes.bytes(), 0x11, kPages * kPage);
    std::memset(machine.bytes.bytes() + kPages / 2 * kPage, 0x22, kPages / 2 * kPage);
    ipc::SendWqe wqe{};
    wqe.opcode = static_cast<uint8_t>(verbs::Opcode::kRdmaWrite);
    wqe.flags = ipc::kSignaled;
    wqe.num_sge = 1;
    wqe.rdma.rkey = machine.mr.key;
    wqe.rdma.remote_addr = kPlace + kPages / 2 * kPage;
    for (int i = 0; i < 8; ++i)
      machine.client.post(machine.qp, wqe, {{kPlace, kPages / 2 * kPage, machine.mr.key}});
    machine.client.ring();
    expect(show(machine.client, {}) == 0, "take memory away");
    std::memset(machine.bytes.bytes(), 0x33, kPages * kPage);
    expect(machine.client.settled(machine.qp), "a queue does not go on");
    for (uint64_t i = 0; i < kPages * kPage; i += 8)
      expect(machine.bytes.bytes()[i] == 0x33, "memory changes that was taken away");
    machine.client.loop_again(machine.qp);
  }
}

}  // namespace

std::vector<Attack> shown_attacks() {
  return {{"what_is_no_memory", what_is_no_memory},
          {"a_table_of_anything", a_table_of_anything},
          {"memory_that_goes", memory_that_goes}};
}

}  // namespace vrdma::hostile
