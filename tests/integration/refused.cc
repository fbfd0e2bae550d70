// refused VDEVICE FILE: opens the vdevice, waits until it has read a byte of FILE, makes queue
// pairs until that is refused, and ends at once, with 0.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "tests/integration/open_device.h"

int main(int, char** argv) {
  ibv_context* const context = open_device(argv[1]);
  ibv_pd* const pd = context != nullptr ? ibv_alloc_pd(context) : nullptr;
  ibv_cq* const cq = pd != nullptr ? ibv_create_cq(context, 16, nullptr, nullptr, 0) : nullptr;
  if (cq == nullptr) return 1;
  std::puts("open");
  std::fflush(stdout);
  char byte = 0;
  if (const int file = ::open(argv[2], O_RDONLY); file < 0 || ::read(file, &byte, 1) != 1) return 1;
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = cq;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {1, 1, 1, 1, 0};
  for (int i = 0; i < 100; ++i)
    if (ibv_create_qp(pd, &attributes) == nullptr)
      ::_exit(errno == ENOMEM || errno == EDQUOT ? 0 : 1);
  return 1;
}
