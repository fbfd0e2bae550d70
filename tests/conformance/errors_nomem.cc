// Out of memory: each verb fails with ENOMEM, whichever of its allocations fails, and leaves
// nothing behind, here or in the daemon.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "tests/conformance/errors.h"

#if defined(__SANITIZE_ADDRESS__)
#define HAS_OWN_MALLOC 0  // the sanitizer's
#else
#define HAS_OWN_MALLOC 1

namespace {
constexpr int kNever = -1;
thread_local int until_failure = kNever;  // allocations of this thread

bool fails() {
  if (until_failure == kNever || until_failure-- > 0) return false;
  errno = ENOMEM;
  return true;
}
}  // namespace

extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* malloc(size_t size) { return fails() ? nullptr : __libc_malloc(size); }
void* calloc(size_t count, size_t size) { return fails() ? nullptr : __libc_calloc(count, size); }
void* realloc(void* old, size_t size) { return fails() ? nullptr : __libc_realloc(old, size); }
}
#endif

namespace conformance {

#if HAS_OWN_MALLOC

namespace {

// Calls `verb`, which returns whether it succeeded, with its first allocation failing, then its
// second, and so on until none fails. Returns how many failed.
int try_without_memory(const std::function<bool()>& verb) {
  for (int count = 0; count < 200; ++count) {
    errno = 0;
    until_failure = count;
    const bool done = verb();
    const bool failed = until_failure == kNever;
    until_failure = kNever;
    const int error = errno;
    if (done) {
      CHECK(!failed || count > 0);
      return count;
    }
    CHECK(failed);
    CHECK_EQ(error, ENOMEM);
  }
  CHECK(false);
  return -1;
}

bool in_place(const void* data) {
  std::ifstream maps("/proc/self/maps");
  const auto at = reinterpret_cast<uint64_t>(data);
  for (std::string line; std::getline(maps, line);) {
    unsigned long long start = 0, end = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx", &start, &end) == 2 && start <= at && at < end)
      return line.find("vrdma-memory") != std::string::npos;
  }
  return false;
}

}  // namespace

CONFORMANCE_TEST(errors, no_memory_for_objects) {
  ibv_pd* pd = nullptr;
  CHECK(try_without_memory([&] { return (pd = ibv_alloc_pd(side.context)) != nullptr; }) > 0);

  constexpr size_t kSize = 1u << 20;
  Buffer buffer(side, kSize);
  buffer.deregister();
  ibv_mr* mr = nullptr;
  CHECK(try_without_memory([&] {
          return (mr = ibv_reg_mr(pd, buffer.data, kSize, IBV_ACCESS_LOCAL_WRITE)) != nullptr;
        }) > 0);
  CHECK(in_place(buffer.data));
  CHECK_EQ(ibv_dereg_mr(mr), 0);

  ibv_mw* mw = nullptr;
  CHECK(try_without_memory([&] { return (mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2)) != nullptr; }) > 0);
  CHECK_EQ(ibv_dealloc_mw(mw), 0);

  ibv_ah_attr where{};
  where.is_global = 1;
  where.port_num = 1;
  where.grh.sgid_index = side.gid_index;
  where.grh.dgid = side.gid;
  ibv_ah* ah = nullptr;
  CHECK(try_without_memory([&] { return (ah = ibv_create_ah(pd, &where)) != nullptr; }) > 0);
  CHECK_EQ(ibv_destroy_ah(ah), 0);

  ibv_comp_channel* channel = nullptr;
  CHECK(try_without_memory(
            [&] { return (channel = ibv_create_comp_channel(side.context)) != nullptr; }) > 0);
  ibv_cq* cq = nullptr;
  CHECK(try_without_memory([&] {
          return (cq = ibv_create_cq(side.context, 16, nullptr, channel, 0)) != nullptr;
        }) > 0);

  ibv_srq_init_attr wanted{};
  wanted.attr.max_wr = 64;
  wanted.attr.max_sge = 1;
  ibv_srq* srq = nullptr;
  CHECK(try_without_memory([&] { return (srq = ibv_create_srq(pd, &wanted)) != nullptr; }) > 0);

  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.srq = srq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {16, 16, 1, 1, 0};
  std::vector<ibv_qp*> qps;
  for (int i = 0; i < 20; ++i) {  // with so many, a completion queue sorts them
    ibv_qp* qp = nullptr;
    CHECK(try_without_memory([&] { return (qp = ibv_create_qp(pd, &init)) != nullptr; }) > 0);
    qps.push_back(qp);
  }
  for (ibv_qp* qp : qps) CHECK_EQ(ibv_destroy_qp(qp), 0);

  // EBUSY if the daemon still had an object of a failed verb.
  CHECK_EQ(ibv_destroy_srq(srq), 0);
  CHECK_EQ(ibv_destroy_cq(cq), 0);
  CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
  CHECK_EQ(ibv_dealloc_pd(pd), 0);
  side.meet(1);
}

CONFORMANCE_TEST(errors, no_memory_for_a_device) {
  // A device that cannot be examined, such as an unreadable directory, is not in the list.
  int count = 0;
  ibv_device** list = nullptr;
  for (int before = 0; before < 200; ++before) {
    until_failure = before;
    list = ibv_get_device_list(&count);
    const bool failed = until_failure == kNever;
    until_failure = kNever;
    if (!failed) break;
    if (list != nullptr) ibv_free_device_list(list);
  }
  CHECK(list != nullptr);
  ibv_device* own = nullptr;
  for (int i = 0; i < count; ++i)
    if (std::strcmp(ibv_get_device_name(list[i]), ibv_get_device_name(side.context->device)) == 0)
      own = list[i];
  CHECK(own != nullptr);
  const auto descriptors = [] {
    int open = 0;
    for (int fd = 0; fd < 1024; ++fd)
      if (::fcntl(fd, F_GETFD) >= 0) ++open;
    return open;
  };
  const int before = descriptors();
  ibv_context* context = nullptr;
  CHECK(try_without_memory([&] { return (context = ibv_open_device(own)) != nullptr; }) > 0);
  CHECK_EQ(ibv_close_device(context), 0);
  CHECK_EQ(descriptors(), before);
  ibv_free_device_list(list);
  side.meet(1);
}

CONFORMANCE_TEST(errors, no_memory_for_a_connection) {
  Cq cq(side);
  Buffer buffer(side, 4096);
  Qp qp(side, cq);
  qp.to_init();
  ibv_device_attr device{};
  CHECK(try_without_memory([&] {
          const int error = ibv_query_device(side.context, &device);
          CHECK(error == 0 || error == errno);
          return error == 0;
        }) > 0);
  qp.connect();
  side.meet(1);
}

#endif

// ibv_post_send(3) and others return an error number; the kernel's providers also set errno.
CONFORMANCE_TEST(errors, errno_says_the_same) {
  Cq cq(side);
  Buffer buffer(side, 4096);
  Qp qp(side, cq);
  const auto says = [](int returned, int wanted) {
    CHECK_EQ(returned, wanted);
    CHECK_EQ(errno, wanted);
    errno = 0;
  };
  errno = 0;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  says(ibv_modify_qp(qp.qp, &attr, IBV_QP_STATE), EINVAL);
  ibv_sge sge = buffer.sge(0, 8);
  ibv_send_wr send{}, *bad_send = nullptr;
  send.sg_list = &sge;
  send.num_sge = 1;
  send.opcode = IBV_WR_SEND;
  says(ibv_post_send(qp.qp, &send, &bad_send), EINVAL);
  CHECK(bad_send == &send);
  ibv_recv_wr receive{}, *bad_receive = nullptr;
  receive.sg_list = &sge;
  receive.num_sge = 1;
  says(ibv_post_recv(qp.qp, &receive, &bad_receive), EINVAL);
  CHECK(bad_receive == &receive);
  says(ibv_destroy_cq(cq.cq), EBUSY);
  says(ibv_dealloc_pd(side.pd), EBUSY);
  says(ibv_resize_cq(cq.cq, 0), EINVAL);
  ibv_port_attr port{};
  says(ibv_query_port(side.context, 2, &port), EINVAL);
  Srq srq(side, 16, 1);
  ibv_srq_attr more{};
  says(ibv_modify_srq(srq.srq, &more, IBV_SRQ_MAX_WR), EINVAL);
  ibv_gid group{};
  says(ibv_attach_mcast(qp.qp, &group, 0), EINVAL);
  side.meet(1);
}

}  // namespace conformance
