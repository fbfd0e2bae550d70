#include "cli/web/server.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <string_view>
#include <utility>

#include "cli/web/confine.h"
#include "cli/web/page.h"

namespace vrdma::cli::web {

namespace {

// The page loads nothing from elsewhere, executes no script but /page.js, and is in no frame.
constexpr char kHeaders[] =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "X-Frame-Options: DENY\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cross-Origin-Opener-Policy: same-origin\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n";

serve::HttpAnswer reply(const char* status, std::string body,
                        const char* type = "text/plain; charset=utf-8") {
  return {status, std::move(body), type, kHeaders};
}

// The port may be another one: that of a tunnel.
bool is_of_this_host(std::string_view host) {
  for (const std::string_view name : {"127.0.0.1", "localhost", "[::1]"})
    if (host == name || (host.starts_with(name) && host[name.size()] == ':')) return true;
  return false;
}

// Takes as long for a token that is nearly right as for another one.
bool is_same(std::string_view given, std::string_view wanted) {
  unsigned differences = given.size() == wanted.size() ? 0 : 1;
  for (size_t i = 0; i < wanted.size(); ++i)
    differences |= static_cast<unsigned char>(wanted[i] ^ (i < given.size() ? given[i] : '\0'));
  return differences == 0;
}

// Also what the program's caller has left open.
void close_all_but(int one, int other) {
  const auto low = static_cast<unsigned>(std::min(one, other));
  const auto high = static_cast<unsigned>(std::max(one, other));
  if (low > 3) (void)::close_range(3, low - 1, 0);
  if (high > low + 1) (void)::close_range(low + 1, high - 1, 0);
  (void)::close_range(high + 1, ~0u, 0);
}

[[noreturn]] void run(serve::HttpServer::Listener listener, base::Fd socket,
                      const std::string& token) {
  (void)::prctl(PR_SET_NAME, "vrdmactl-web", 0, 0, 0);
  const int other = socket.get();
  close_all_but(listener.fd.get(), other);
  // Empty: it serves.
  const auto tell = [other](const std::string& reason) {
    (void)::send(other, reason.c_str(), reason.size() + 1, MSG_NOSIGNAL);
  };
  const auto fail = [&tell](const base::Error& why) {
    tell(why.message());
    ::_exit(1);
  };
  auto loop = base::EventLoop::create();
  if (!loop) fail(loop.error());
  const auto source = serve::TextSource::start(**loop, std::move(socket), [] { ::_exit(0); });
  if (!source) fail(source.error());
  const auto server = serve::HttpServer::start(
      **loop, std::move(listener),
      [&](const serve::HttpRequest& request, const serve::HttpServer::Answer& then) {
        answer(request, token, **source, then);
      });
  if (!server) fail(server.error());
  if (auto confined = confine(); !confined) fail(confined.error());
  tell("");
  (*loop)->run();
  ::_exit(0);
}

}  // namespace

void answer(const serve::HttpRequest& request, const std::string& token, serve::TextSource& state,
            const serve::HttpServer::Answer& answer) {
  if (!is_of_this_host(request.host))
    return answer(reply("403 Forbidden", "ask for this page at 127.0.0.1 or localhost\n"));
  if (const File* const file = find_file(request.path))
    return answer(reply("200 OK", file->content, file->type));
  if (request.path != "/state") return answer(reply("404 Not Found", "there is no such page\n"));
  if (!is_same(request.authorization, "Bearer " + token))
    return answer(reply("401 Unauthorized",
                        "the token is missing or not of this vrdmactl: open the address that "
                        "`vrdmactl web` printed\n"));
  state.ask(
      [answer](const std::string& text) { answer(reply("200 OK", text, "application/json")); });
}

base::Result<base::Fd> start(serve::HttpServer::Listener listener, const std::string& token) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return base::fail_errno("start the server of the page");
  base::Fd ours(ends[0]), its(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return base::fail_errno("start the server of the page");
  if (child == 0) {
    ours.reset();
    run(std::move(listener), std::move(its), token);
  }
  its.reset();
  std::string reason;
  for (char c = 1; c != '\0';) {
    if (::recv(ours.get(), &c, 1, 0) != 1)
      return base::fail(EPIPE, "the server of the page has ended at its start");
    if (c != '\0') reason += c;
  }
  if (!reason.empty()) return base::fail(EPERM, "serve the page: " + reason);
  return ours;
}

}  // namespace vrdma::cli::web
