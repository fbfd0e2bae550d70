// A process with a session becomes a set-user-id program, and keeps all that makes a session. Its
// child goes on with the socket: it tries to reach that program's memory, also after another worker
// or daemon has taken over.
//
//   vrdma_becomes SOCKET SET_ID     run as root, and becomes nobody first; SET_ID: this program,
//   set-user-id vrdma_becomes guarded           what SET_ID runs: fails if its memory changes
//
// The child prints "asked" when a process of vrdmad may be killed, and "refused" at the end.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

#include "tests/integration/hostile/looped.h"

namespace vrdma::hostile {
namespace {

constexpr uid_t kNobody = 65534;
constexpr uint64_t kPlace = 1u << 30;
constexpr size_t kSize = 4096;
constexpr uint8_t kSecret = 0x5a;
constexpr uint32_t kAll = 15, kRemoteRead = 4;  // verbs::Access

uint8_t* map_place(uint8_t content) {
  void* const at = ::mmap(reinterpret_cast<void*>(kPlace), kSize, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  expect(at != MAP_FAILED, std::string("mmap: ") + std::strerror(errno));
  std::memset(at, content, kSize);
  return static_cast<uint8_t*>(at);
}

[[noreturn]] void guarded() {
  expect(::setresuid(0, 0, 0) == 0, "it is not set-user-id");
  const uint8_t* const secret = map_place(kSecret);
  std::cout << "guarded" << std::endl;
  for (;; ::usleep(10'000))
    expect(std::all_of(secret, secret + kSize, [](uint8_t byte) { return byte == kSecret; }),
           "the memory of a set-user-id program has changed");
}

// All descriptors stay open.
void become(const std::string& program) {
  for (int fd = 3; fd < 1024; ++fd)
    if (const int flags = ::fcntl(fd, F_GETFD); flags >= 0)
      (void)::fcntl(fd, F_SETFD, flags & ~FD_CLOEXEC);
  ::execl(program.c_str(), program.c_str(), "guarded", nullptr);
  failed("exec");
}

// Tries to write there and to read there, by `key`.
void reach(Looped& session, uint32_t key, const std::string& how) {
  session.again();
  session.write(64, kPlace, key);
  (void)session.client.settled(session.qp);
  session.again();
  ipc::SendWqe read = session.wqe(verbs::Opcode::kRdmaRead);
  read.rdma.remote_addr = kPlace;
  read.rdma.rkey = key;
  session.client.post(session.qp, read, {session.data()});
  (void)session.client.settled(session.qp);
  std::array<uint8_t, 64> got{};
  expect(::pread(session.client.memory_fd.get(), got.data(), got.size(), Looped::kAddr) ==
             static_cast<ssize_t>(got.size()),
         "pread");
  expect(std::count(got.begin(), got.end(), kSecret) == 0,
         "the memory of a set-user-id program was read: " + how);
}

void go_on(const Target& target, Looped& session, uint32_t before) {
  session.client.map();
  reach(session, before, "by a key of before");
  for (const uint32_t access : {kRemoteRead, kAll}) {
    ipc::Request request = request_of(ipc::Call::kRegMr);
    request.reg_mr = {
        kPlace, kSize, kPlace, session.pd, access, static_cast<uint32_t>(ipc::Way::kReached), 0};
    const Answer answer = session.client.call(request);
    if (!answer.came) break;  // the session has ended
    if (answer.error == 0) reach(session, answer.reply.reg_mr.key, "by a new key");
  }
  session.again();
  std::cout << "asked" << std::endl;
  const Answer answer = session.client.resume(target.socket);
  expect(answer.error == ESTALE || answer.error == EPERM,
         "the session of what is a set-user-id program now is taken over");
  // Without a socket: the rings are in memory that it shares, and the key of before is in the
  // session.
  session.write(64, kPlace, before);
  session.client.ring();
  (void)session.client.executed(session.qp, 300);
  ::usleep(50'000);  // the other program looks at its memory
  std::cout << "refused" << std::endl;
}

void become_another(const Target& target, const std::string& program) {
  expect(::setresgid(kNobody, kNobody, kNobody) == 0 && ::setresuid(kNobody, kNobody, kNobody) == 0,
         "setresuid");
  ::prctl(PR_SET_DUMPABLE, 1);  // as in a program that the user has started
  Looped session(target);
  (void)map_place(0);
  const uint32_t before =
      session.client.reg_mr(session.pd, kPlace, kSize, ipc::Way::kReached, kAll).key;
  session.write(64, kPlace, before);
  expect(session.client.executed(session.qp) && session.client.last_result(session.qp).status == 0,
         "its own memory cannot be reached");
  const int parent = ::getpid();
  if (::fork() != 0) become(program);
  // Until it is root, which this process may not look into.
  const std::string memory = "/proc/" + std::to_string(parent) + "/mem";
  for (int left = 1000; left > 0; --left, ::usleep(10'000)) {
    const base::Fd open(::open(memory.c_str(), O_RDONLY | O_CLOEXEC));
    if (!open.valid() && errno == EACCES) break;
  }
  ::usleep(200'000);  // it makes its secret
  go_on(target, session, before);
}

}  // namespace
}  // namespace vrdma::hostile

int main(int argc, char** argv) {
  using namespace vrdma::hostile;
  if (argc == 2 && std::string(argv[1]) == "guarded") guarded();
  if (argc != 3) return 2;
  become_another({argv[1], 0}, argv[2]);
  return 0;
}
