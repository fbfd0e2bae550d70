// vrdmad-helper: the broker, the intake or the stopper. vrdmad starts each; no user does.
//
//   vrdmad-helper broker RUN_DIR UID GID WORKER_UID CHANNELS [DIRECTORY OF A CONTROL GROUP]...
//   vrdmad-helper intake UID GID
//   vrdmad-helper stopper
//
// A program of its own for the processes with privileges: it contains only what they need, neither
// gRPC nor SQLite, and each process has its own address layout and stack canary, so that what a bug
// in vrdmad discloses does not help against them. It is static where the libraries permit.
//
// Descriptor 3 is the socket to vrdmad. The first message there is a string with its final zero:
// empty when the process serves, or else the reason why it ends.
#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "core/ipc/socket.h"
#include "vrdmad/broker/broker_serve.h"
#include "vrdmad/broker/intake_process.h"
#include "vrdmad/privileges.h"
#include "vrdmad/stopper/process.h"
#include "vrdmad/system_calls.h"

namespace {

using namespace vrdma;          // NOLINT(google-build-using-namespace): of a program
using namespace vrdma::vrdmad;  // NOLINT(google-build-using-namespace)

constexpr int kDaemon = 3;

[[noreturn]] void give_up() {
  (void)std::fputs("vrdmad-helper: it is started by vrdmad\n", stderr);
  ::_exit(1);
}

unsigned number(std::string_view word) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) give_up();
  return value;
}

// Ends the process if `dropped` is an error.
void tell(const base::Fd& daemon, const base::Result<void>& dropped) {
  const std::string reason = dropped ? std::string() : dropped.error().message();
  (void)ipc::send_message(daemon.get(), reason.c_str(), reason.size() + 1);
  if (!dropped) ::_exit(1);
}

}  // namespace

// vrdmad reports if there are no filters of system calls.
int main(int count, char** words) {
  const std::string_view role = count > 1 ? words[1] : "";
  base::Fd daemon(kDaemon);
  if (::fcntl(kDaemon, F_SETFD, FD_CLOEXEC) != 0) give_up();
  if (role == "broker" && count >= 7) {
    BrokerPlace place{words[2], number(words[3]), number(words[4])};
    place.first_worker_user = number(words[5]);
    place.groups.assign(words + 7, words + count);
    broker::serve(std::move(daemon), place, number(words[6]), [](const base::Fd& socket) {
      const auto dropped = keep_broker_privileges();
      (void)confine_broker();
      tell(socket, dropped);
    });
  }
  if (role == "intake" && count == 4) {
    const User user{number(words[2]), number(words[3])};
    intake::serve(std::move(daemon), [&](const base::Fd& socket) {
      const auto dropped = drop_privileges(user);
      (void)confine_intake();
      tell(socket, dropped);
    });
  }
  if (role == "stopper" && count == 2)
    stopper::serve(std::move(daemon), [](const base::Fd& socket) {
      (void)confine_stopper();
      tell(socket, {});
    });
  give_up();
}
