// A context, and what was made in it, by another name: ibv_import_device(3) and its like.
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "tests/conformance/side.h"

namespace conformance {
namespace {

CONFORMANCE_TEST(memory, import) {
  alignas(4096) static char memory[4096];
  ibv_mr* const mr =
      ibv_reg_mr(side.pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  CHECK(mr != nullptr);

  ibv_context* const context = ibv_import_device(::dup(side.context->cmd_fd));
  CHECK(context != nullptr);
  ibv_pd* const pd = ibv_import_pd(context, side.pd->handle);
  CHECK(pd != nullptr);
  CHECK_EQ(pd->handle, side.pd->handle);
  ibv_mr* const imported = ibv_import_mr(pd, mr->handle);
  CHECK(imported != nullptr);
  CHECK_EQ(imported->rkey, mr->rkey);
  CHECK_EQ(imported->lkey, mr->lkey);
  CHECK(imported->addr == nullptr);

  // Objects may be made in it as in the original.
  ibv_mr* const made = ibv_reg_mr(pd, memory, 64, IBV_ACCESS_LOCAL_WRITE);
  CHECK(made != nullptr);
  CHECK_EQ(ibv_dereg_mr(made), 0);

  CHECK(ibv_import_pd(context, 0x7fffffff) == nullptr);
  CHECK_EQ(errno, EINVAL);
  CHECK(ibv_import_mr(pd, 0x7fffffff) == nullptr);
  CHECK_EQ(errno, EINVAL);

  ibv_unimport_mr(imported);
  ibv_unimport_pd(pd);
  CHECK_EQ(ibv_close_device(context), 0);
  // The original is as it was.
  ibv_port_attr port;
  CHECK_EQ(ibv_query_port(side.context, 1, &port), 0);
  CHECK_EQ(ibv_dereg_mr(mr), 0);
}

CONFORMANCE_TEST(memory, import_of_no_device) {
  int pair[2];
  CHECK_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  CHECK(ibv_import_device(pair[0]) == nullptr);
  CHECK_EQ(errno, EOPNOTSUPP);
  // It was not taken over.
  CHECK_EQ(::close(pair[0]), 0);
  CHECK_EQ(::close(pair[1]), 0);
}

}  // namespace
}  // namespace conformance
