// The command `vrdmactl web`: reads the daemon's state for the server of the page (cli/web), which
// may not. It keeps its privileges because vrdmad's socket is root's, also that of the next vrdmad;
// so it reads nothing from the server but that the server wants to know it.
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iostream>
#include <optional>
#include <thread>

#include "cli/connect.h"
#include "cli/web/server.h"
#include "cli/web_state.h"
#include "core/base/hex.h"

namespace vrdma::cli {

namespace {

using Clock = WebReading::Clock;

// A server that was taken over cannot make this process read more often.
constexpr auto kLeast = std::chrono::milliseconds(400);
// After a reading there is a pause, so many times as long as the reading. So a host with very many
// queue pairs, or whose processors are busy, gets fewer pictures, and its daemon is left in peace.
constexpr int kPause = 9;
constexpr auto kLongest = std::chrono::seconds(5);  // pause
// Rates over a longer time would not be of now.
constexpr auto kMost = std::chrono::seconds(10);

base::Result<std::string> make_token() {
  std::array<char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return base::fail_errno("make a token");
  return base::hex_of({bytes.data(), bytes.size()});
}

class Reader {
 public:
  explicit Reader(const Options& options) : options_(options) {}

  // The picture of now, or why there is none.
  std::string read() {
    std::this_thread::sleep_until(next_);
    const auto began = Clock::now();
    auto reading = try_to_read();
    const auto now = Clock::now();
    next_ = now + std::clamp<Clock::duration>((now - began) * kPause, kLeast, kLongest);
    if (!reading) {
      client_.reset();  // the next vrdmad needs another one
      // Its vdevices and events may have the same numbers.
      before_.activity.clear_vdevs_revision();
      before_.activity.clear_last_event();
      return web_state(reading.error());
    }
    if (reading->time - before_.time > kMost) before_.time = {};
    std::string state = web_state(before_, *reading);
    before_ = std::move(*reading);
    return state;
  }

 private:
  base::Result<WebReading> try_to_read() {
    if (!client_) {
      auto client = api::Client::connect(options_.run_dir);
      if (!client) return base::pass(std::move(client).error());
      client_ = std::move(*client);
    }
    return read_for_web(*client_, &before_);
  }

  const Options& options_;
  std::optional<api::Client> client_;
  WebReading before_;
  Clock::time_point next_{};  // not before
};

bool send_all(int socket, const void* bytes, size_t size) {
  const auto* at = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t sent = ::send(socket, at, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

}  // namespace

Outcome serve_web(const Options& options, Output&) {
  auto listener = serve::HttpServer::listen(options.listen, serve::HttpServer::Reach::kHost);
  if (!listener) return base::pass(std::move(listener).error());
  auto token = make_token();
  if (!token) return base::pass(std::move(token).error());
  auto server = web::start(std::move(*listener), *token);
  if (!server) return base::pass(std::move(server).error());
  // An error of the first connection is this command's, not one of the page.
  if (auto daemon = with_client(options, [](api::Client&) { return Outcome(); }); !daemon)
    return daemon;
  std::cout << "http://" << options.listen << "/#" << *token << std::endl;
  Reader reader(options);
  for (char question = 0;;) {
    const ssize_t got = ::recv(server->get(), &question, 1, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    const std::string state = reader.read();
    const serve::TextSource::Header header{state.size()};
    if (!send_all(server->get(), &header, sizeof header) ||
        !send_all(server->get(), state.data(), state.size()))
      break;
  }
  return base::fail(EPIPE, "the server of the page has ended");
}

}  // namespace vrdma::cli
