// fake_vrdmad RUN_DIR: run directory, admin socket and gRPC as in vrdmad, over a FakeBackend, for
// tests that need another process. Shuts down on SIGTERM or SIGINT.
#include <sys/epoll.h>
#include <sys/signalfd.h>

#include <csignal>
#include <cstdio>

#include "tests/unit/vrdmad/admin/fake_backend.h"
#include "vrdmad/admin/server.h"
#include "vrdmad/control/run_dir.h"

int main(int argc, char** argv) {
  using namespace vrdma;
  if (argc != 2) return 2;
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  const base::Fd signal_fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));

  auto run_dir = vrdmad::RunDir::open(argv[1]);
  if (!run_dir) {
    std::fprintf(stderr, "fake_vrdmad: %s\n", run_dir.error().message().c_str());
    return 1;
  }
  auto loop = base::EventLoop::create();
  if (!loop) return 1;
  vrdmad::FakeBackend backend(**loop);
  auto admin = vrdmad::AdminServer::start(**loop, backend, run_dir->admin_socket());
  if (!admin) {
    std::fprintf(stderr, "fake_vrdmad: %s\n", admin.error().message().c_str());
    return 1;
  }
  auto ending = (*loop)->watch(signal_fd.get(), EPOLLIN | EPOLLONESHOT,
                               [&](uint32_t) { (*admin)->stop([&] { (*loop)->stop(); }); });
  if (!ending) return 1;
  (*loop)->run();
  return 0;
}
