#include "vrdmad/admin/remote_metrics.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>

#include "core/serve/http.h"
#include "core/serve/text_source.h"
#include "vrdmad/admin/metrics.h"

namespace vrdma::vrdmad {

using base::fail;
using base::fail_errno;
using base::Fd;
using base::pass;
using base::Result;
using serve::HttpServer;

namespace {

// What a handshake costs is taken from others last.
constexpr int kNice = 10;
// The process of a vrdmad that was killed may still listen for a moment.
constexpr auto kPatience = std::chrono::seconds(2);

Result<HttpServer::Listener> listen(const std::string& address) {
  for (const auto end = std::chrono::steady_clock::now() + kPatience;;) {
    auto listener = HttpServer::listen(address, HttpServer::Reach::kNetwork);
    if (listener || listener.error().code() != EADDRINUSE ||
        std::chrono::steady_clock::now() >= end)
      return listener;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// The process itself.
class Process {
 public:
  Process(base::EventLoop& loop, serve::TextSource& daemon) : loop_(loop), daemon_(daemon) {}

  Result<void> start(const std::string& address, const serve::TlsFiles& files,
                     const std::function<Result<void>()>& confine) {
    auto listener = listen(address);
    if (!listener) return pass(std::move(listener).error());
    if (auto confined = confine(); !confined) return confined;
    auto guard = serve::TlsGuard::load(files, loop_.clock());
    if (!guard) return pass(std::move(guard).error());
    auto server = HttpServer::start(
        loop_, std::move(*listener),
        [this](const serve::HttpRequest& request, const HttpServer::Answer& answer) {
          if (request.path != kMetricsPath) return answer(no_such_path());
          daemon_.ask([this, answer](const std::string& text) {
            answer({"200 OK", text + metrics_text(refusal_rows(*server_->refusals()))});
          });
        },
        std::move(*guard));
    if (!server) return pass(std::move(server).error());
    server_ = std::move(*server);
    return {};
  }

 private:
  base::EventLoop& loop_;
  serve::TextSource& daemon_;
  std::unique_ptr<HttpServer> server_;
};

[[noreturn]] void run_process(Fd daemon, const std::string& address, const serve::TlsFiles& files,
                              const std::function<Result<void>()>& confine) {
  (void)::prctl(PR_SET_NAME, "vrdmad-metrics", 0, 0, 0);
  (void)::setpriority(PRIO_PROCESS, 0, kNice);
  const auto kept = static_cast<unsigned>(daemon.get());
  if (kept > 3) (void)::close_range(3, kept - 1, 0);
  (void)::close_range(kept + 1, ~0u, 0);
  const auto tell = [&](const std::string& reason) {
    (void)::send(static_cast<int>(kept), reason.c_str(), reason.size() + 1, MSG_NOSIGNAL);
  };
  auto loop = base::EventLoop::create();
  if (!loop) {
    tell(loop.error().message());
    ::_exit(1);
  }
  const auto source = serve::TextSource::start(**loop, std::move(daemon), [] { ::_exit(0); });
  if (!source) ::_exit(1);
  Process process(**loop, **source);
  if (auto started = process.start(address, files, confine); !started) {
    tell(started.error().message());
    ::_exit(1);
  }
  tell("");
  (*loop)->run();
  ::_exit(0);
}

}  // namespace

Result<Fd> start_metrics_process(const std::string& address, const serve::TlsFiles& files,
                                 const std::function<Result<void>()>& confine) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return fail_errno("start the metrics process");
  Fd ours(ends[0]), its(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return fail_errno("start the metrics process");
  if (child == 0) run_process(std::move(its), address, files, confine);
  its.reset();
  std::string reason;
  char c = 1;
  while (c != '\0') {
    if (::recv(ours.get(), &c, 1, 0) != 1)
      return fail(EPIPE, "the metrics process has ended at its start");
    if (c != '\0') reason += c;
  }
  if (!reason.empty()) return fail(EINVAL, "metrics: " + reason);
  return ours;
}

Result<std::unique_ptr<RemoteMetrics>> RemoteMetrics::attach(base::EventLoop& loop, Fd process,
                                                             Scrapes& scrapes,
                                                             std::function<void()> ended) {
  std::unique_ptr<RemoteMetrics> metrics(
      new RemoteMetrics(loop, std::move(process), scrapes, std::move(ended)));
  if (auto watched = metrics->watch(EPOLLIN); !watched) return pass(std::move(watched).error());
  return metrics;
}

Result<void> RemoteMetrics::watch(uint32_t events) {
  watch_.reset();
  auto watch = loop_.watch(process_.get(), events, [this](uint32_t ready) { on_ready(ready); });
  if (!watch) return pass(std::move(watch).error());
  watch_ = std::move(*watch);
  return {};
}

void RemoteMetrics::on_ready(uint32_t events) {
  if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
    watch_.reset();
    return std::exchange(ended_, nullptr)();
  }
  if (!answer_.empty()) return send();
  char question = 0;
  if (::recv(process_.get(), &question, 1, MSG_DONTWAIT) != 1) return;
  // No more questions before this one is answered; only the end of the process.
  if (!watch(0)) return;
  scrapes_.ask([this, alive = std::weak_ptr(alive_)](const Scrapes::Text& text) {
    if (alive.expired() || !watch_.active()) return;
    const serve::TextSource::Header header{text->size()};
    answer_.assign(reinterpret_cast<const char*>(&header), sizeof header);
    answer_ += *text;
    sent_ = 0;
    send();
  });
}

void RemoteMetrics::send() {
  while (sent_ < answer_.size()) {
    const ssize_t sent = ::send(process_.get(), answer_.data() + sent_, answer_.size() - sent_,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      (void)watch(EPOLLOUT);  // at its end, this says so
      return;
    }
    sent_ += static_cast<size_t>(sent);
  }
  answer_.clear();
  answer_.shrink_to_fit();
  (void)watch(EPOLLIN);
}

}  // namespace vrdma::vrdmad
