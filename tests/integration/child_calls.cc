// child_calls DEVICE GID_INDEX: what the verbs calls of a child that fork(2) made return, one child
// for each call, and whether the parent's queue pairs go on afterwards. Prints a table: call,
// child, parent.
//
// The objects are the parent's. With the kernel's verbs the child shares the descriptor that they
// belong to; here the session is the parent's alone. Fails if a child is killed by a signal, or the
// parent is disturbed.
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "tests/integration/rc.h"

namespace {

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "FAILED: %s: %s\n", what, std::strerror(errno));
  std::_Exit(1);
}

// Two queue pairs of one process, and memory for both.
struct Objects {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  ibv_qp* qp[2] = {};
  alignas(4096) uint8_t bytes[8192] = {};

  void make(const char* device, int gid_index) {
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    for (int i = 0; i < count; ++i)
      if (std::strcmp(ibv_get_device_name(list[i]), device) == 0)
        context = ibv_open_device(list[i]);
    if (context == nullptr) fail("ibv_open_device");
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 64, nullptr, nullptr, 0);
    mr = ibv_reg_mr(pd, bytes, sizeof bytes, rc::kAccess);
    if (pd == nullptr || cq == nullptr || mr == nullptr) fail("make objects");
    ibv_gid gid{};
    if (ibv_query_gid(context, 1, gid_index, &gid) != 0) fail("ibv_query_gid");
    for (ibv_qp*& one : qp) {
      ibv_qp_init_attr init{};
      init.send_cq = init.recv_cq = cq;
      init.qp_type = IBV_QPT_RC;
      init.cap = {16, 16, 1, 1, 0};
      one = ibv_create_qp(pd, &init);
      if (one == nullptr) fail("ibv_create_qp");
    }
    for (int i = 0; i < 2; ++i)
      if (rc::connect(qp[i], qp[1 - i]->qp_num, gid, gid_index) != nullptr) fail("connect");
    ibv_free_device_list(list);
  }
  [[nodiscard]] ibv_send_wr write(ibv_sge* sge) const {
    *sge = {reinterpret_cast<uint64_t>(bytes), 64, mr->lkey};
    ibv_send_wr wr{};
    wr.sg_list = sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {reinterpret_cast<uint64_t>(bytes + 4096), mr->rkey};
    return wr;
  }
  // A WRITE to itself arrives.
  [[nodiscard]] bool works() {
    static uint8_t value = 0;
    ibv_wc wc{};
    while (ibv_poll_cq(cq, 1, &wc) > 0) {
    }
    std::memset(bytes, ++value, 64);
    ibv_sge sge{};
    ibv_send_wr wr = write(&sge), *bad = nullptr;
    if (ibv_post_send(qp[0], &wr, &bad) != 0) return false;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (ibv_poll_cq(cq, 1, &wc) == 0)
      if (std::chrono::steady_clock::now() > end) return false;
    return wc.status == IBV_WC_SUCCESS && bytes[4096] == value;
  }
};

struct Call {
  const char* name;
  std::function<int(Objects&)> run;  // 0, or errno
};

int of_pointer(const void* made) { return made != nullptr ? 0 : errno; }

std::vector<Call> calls() {
  return {
      {"ibv_query_device",
       [](Objects& o) {
         ibv_device_attr attr;
         return ibv_query_device(o.context, &attr);
       }},
      {"ibv_query_port",
       [](Objects& o) {
         ibv_port_attr attr;
         return ibv_query_port(o.context, 1, &attr);
       }},
      {"ibv_alloc_pd", [](Objects& o) { return of_pointer(ibv_alloc_pd(o.context)); }},
      {"ibv_reg_mr",
       [](Objects& o) { return of_pointer(ibv_reg_mr(o.pd, o.bytes, 4096, rc::kAccess)); }},
      {"ibv_create_cq",
       [](Objects& o) { return of_pointer(ibv_create_cq(o.context, 16, nullptr, nullptr, 0)); }},
      {"ibv_create_qp",
       [](Objects& o) {
         ibv_qp_init_attr init{};
         init.send_cq = init.recv_cq = o.cq;
         init.qp_type = IBV_QPT_RC;
         init.cap = {16, 16, 1, 1, 0};
         return of_pointer(ibv_create_qp(o.pd, &init));
       }},
      {"ibv_query_qp",
       [](Objects& o) {
         ibv_qp_attr attr;
         ibv_qp_init_attr init;
         return ibv_query_qp(o.qp[0], &attr, IBV_QP_STATE, &init);
       }},
      {"ibv_poll_cq",
       [](Objects& o) {
         ibv_wc wc;
         return ibv_poll_cq(o.cq, 1, &wc) < 0 ? errno : 0;
       }},
      {"ibv_post_recv",
       [](Objects& o) {
         ibv_recv_wr wr{}, *bad = nullptr;
         return ibv_post_recv(o.qp[1], &wr, &bad);
       }},
      {"ibv_post_send",
       [](Objects& o) {
         ibv_sge sge{};
         ibv_send_wr wr = o.write(&sge), *bad = nullptr;
         return ibv_post_send(o.qp[1], &wr, &bad);
       }},
      {"exit",
       [](Objects&) {
         std::exit(0);
         return 0;
       }},
      {"ibv_close_device", [](Objects& o) { return ibv_close_device(o.context); }},
      {"ibv_dereg_mr", [](Objects& o) { return ibv_dereg_mr(o.mr); }},
      {"ibv_destroy_qp", [](Objects& o) { return ibv_destroy_qp(o.qp[0]); }},
  };
}

// Memory that a handler of the program makes in each child, before the library's. It must not lie
// where the library has its own.
constexpr size_t kMade = 1u << 20;
constexpr int kPieces = 32;
uint8_t* made[kPieces];

void make_memory() {
  for (uint8_t*& piece : made) {
    void* const at =
        ::mmap(nullptr, kMade, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) ::_exit(ENOMEM);
    piece = static_cast<uint8_t*>(at);
    piece[0] = piece[kMade - 1] = 0x5a;
  }
}

bool has_memory() {
  return std::all_of(std::begin(made), std::end(made), [](const uint8_t* piece) {
    return piece[0] == 0x5a && piece[kMade - 1] == 0x5a;
  });
}

// What the call returned; or how the child ended, in capitals.
std::string child_of(Objects& objects, const Call& call) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(5);
    if (!has_memory()) ::raise(SIGSEGV);  // as for a program that has a pointer there
    ::_exit(call.run(objects));
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) fail("fork");
  if (WIFSIGNALED(status)) return std::string("SIG") + ::sigabbrev_np(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "0" : ::strerrorname_np(WEXITSTATUS(status));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  ::pthread_atfork(nullptr, nullptr, make_memory);
  static Objects objects;
  objects.make(argv[1], std::atoi(argv[2]));
  if (!objects.works()) fail("a WRITE before any child");
  for (const Call& call : calls()) {
    const std::string child = child_of(objects, call);
    const bool works = objects.works();
    std::printf("| `%s` | %s | %s |\n", call.name, child.c_str(),
                works ? "goes on" : "is disturbed");
    if (!works || child.starts_with("SIG")) return 1;
  }
  return 0;
}
