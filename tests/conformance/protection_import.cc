// Another process uses a protection domain and a region of one process.
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "tests/conformance/queue.h"

namespace conformance {

namespace {

constexpr size_t kSize = 16384;

// The importer, a child of a: it has a queue pair, and its messages are in its parent's memory.
void import_and_use(Side& side, const Buffer& shared) {
  ibv_context* context = ibv_import_device(::dup(side.context->cmd_fd));
  CHECK(context != nullptr);
  ibv_pd* pd = ibv_import_pd(context, side.pd->handle);
  CHECK(pd != nullptr);
  ibv_mr* mr = ibv_import_mr(pd, shared.mr->handle);
  CHECK(mr != nullptr);
  CHECK(mr->addr == nullptr);
  CHECK_EQ(mr->length, shared.size);
  const auto refused = [](const void* object, int error) {
    CHECK(object == nullptr);
    CHECK_EQ(errno, error);
  };
  refused(ibv_import_pd(context, side.pd->handle + 1000), EINVAL);
  refused(ibv_import_mr(pd, shared.mr->handle + 1000), EINVAL);
  CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAllAccess),
           static_cast<int>(IBV_REREG_MR_ERR_INPUT));
  side.context = context;
  side.pd = pd;
  {
    Cq cq(side);
    Qp qp(side, cq);
    qp.connect();
    const Remote at = side.exchange(Remote{shared.address(), kSize, mr->rkey, 0});
    fill(shared.data, 4096, 99);  // the child's own copy
    qp.write(1, {{shared.address(), 4096, mr->lkey}}, at);
    cq.expect(1);
    qp.receive(2, {{shared.address(8192), 4096, mr->lkey}});
    side.meet(1);
    cq.expect(2);
    side.meet(2);
  }
  ibv_unimport_mr(mr);
  ibv_unimport_pd(pd);
  CHECK_EQ(ibv_close_device(context), 0);
}

}  // namespace

CONFORMANCE_TEST(protection, imported_region) {
  // In place and reached.
  for (const int access : {kAllAccess, kAllAccess | IBV_ACCESS_ON_DEMAND}) {
    Buffer shared(side, kSize, access);
    fill(shared.data, kSize, side.is_a() ? 21 : 22);
    if (side.is_a()) {
      const pid_t child = ::fork();
      CHECK(child >= 0);
      if (child == 0) {
        import_and_use(side, shared);
        ::_exit(0);
      }
      int status = 0;
      CHECK(::waitpid(child, &status, 0) == child);
      CHECK_EQ(status, 0);
      check_filled(shared.data, 4096, 21);
      check_filled(shared.data + 4096, 4096, 22, 4096);
      check_filled(shared.data + 8192, 4096, 22, 8192);
      continue;
    }
    Cq cq(side);
    Qp qp(side, cq);
    qp.connect();
    const Remote at = side.exchange(remote_of(shared));
    side.meet(1);
    check_filled(shared.data, 4096, 21);
    qp.write(3, {shared.sge(4096, 4096)}, at, 4096);
    cq.expect(3);
    qp.send(4, {shared.sge(8192, 4096)});
    cq.expect(4);
    side.meet(2);
  }
}

}  // namespace conformance
