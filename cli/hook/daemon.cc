#include "cli/hook/daemon.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cstring>
#include <thread>

#include "core/ipc/socket.h"

namespace vrdma::cli::hook {

namespace {

using base::Fd;
using base::Result;
using std::chrono::steady_clock;
using vrdma::hook::Answer;
using vrdma::hook::Request;

constexpr auto kPause = std::chrono::milliseconds(50);

Result<Fd> connect_once(const sockaddr_un& address, std::chrono::seconds wait) {
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return base::fail_errno("make a socket");
  const timeval limit{wait.count(), 0};
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO})  // the latter also limits connect()
    (void)::setsockopt(socket.get(), SOL_SOCKET, option, &limit, sizeof limit);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return base::fail_errno(std::string("connect to ") + address.sun_path);
  return socket;
}

template <size_t kSize>
bool is_terminated(const char (&text)[kSize]) {
  return ::strnlen(text, kSize) < kSize;
}

bool is_valid(const Answer& answer) {
  if (!is_terminated(answer.run_dir) || !is_terminated(answer.sockets) ||
      !is_terminated(answer.reason) || answer.vdevices > vrdma::hook::kMostVdevices)
    return false;
  if (*answer.sockets != '\0' && *answer.sockets != '/') return false;
  for (uint32_t i = 0; i < answer.vdevices; ++i) {
    const auto& [name, tree] = answer.vdevice[i];
    if (!is_terminated(name) || !is_terminated(tree) || *name == '\0' || *name == '.' ||
        std::strchr(name, '/') != nullptr)
      return false;
  }
  return true;
}

}  // namespace

Result<Daemon> Daemon::connect(const std::string& run_dir, std::chrono::milliseconds patience,
                               std::chrono::seconds wait) {
  sockaddr_un address{AF_UNIX, {}};
  const std::string path = run_dir + "/hook.sock";
  if (auto fits = put_text(path, address.sun_path, "the path " + path); !fits)
    return base::pass(std::move(fits).error());
  for (const auto end = steady_clock::now() + patience;; std::this_thread::sleep_for(kPause)) {
    auto socket = connect_once(address, wait);
    if (socket) return Daemon(std::move(*socket));
    const int code = socket.error().code();
    if (code != ENOENT && code != ECONNREFUSED) return base::pass(std::move(socket).error());
    if (steady_clock::now() >= end)
      return base::fail(code, "vrdmad does not run: nothing listens on " + path +
                                  "; start vrdmad, then the container");
  }
}

Result<Answer> Daemon::ask(const Request& request, const std::vector<int>& fds) const {
  // EPIPE: vrdmad has closed the connection, perhaps after a refusal, which is the answer.
  if (auto sent = ipc::send_message(socket_.get(), &request, sizeof request, fds);
      !sent && sent.error().code() != EPIPE)
    return base::pass(std::move(sent).error(), "send a request to vrdmad");
  Answer answer;
  ssize_t size = 0;
  do {
    size = ::recv(socket_.get(), &answer, sizeof answer, MSG_TRUNC);
  } while (size < 0 && errno == EINTR);  // also when the hook is stopped and continued
  if (size == 0 || (size < 0 && errno == ECONNRESET))
    return base::fail(ECONNRESET, "vrdmad ended before it answered; start the container again");
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
    return base::fail(ETIMEDOUT, "vrdmad does not answer; see its log");
  if (size < 0) return base::fail_errno("receive an answer of vrdmad");
  if (size != ssize_t{sizeof answer} || !is_valid(answer))
    return base::fail(EBADMSG,
                      "vrdmad answers in a way that this hook does not understand: "
                      "install both from the same build");
  if (answer.error != 0) return base::fail(answer.error, answer.reason);
  return answer;
}

void Daemon::report(const std::string& container, const std::string& reason) const {
  Request request;
  request.op = Request::Op::kFailed;
  (void)put_text(container, request.container, "");
  reason.copy(request.reason, sizeof request.reason - 1);
  (void)ipc::send_message(socket_.get(), &request, sizeof request);
}

}  // namespace vrdma::cli::hook
