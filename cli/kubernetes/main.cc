// vrdma-device-plugin: the classes of vrdmad as resources of a Kubernetes node. main() starts the
// event loop; plugin/plugin.h and dra/driver.h are where the work begins, of one mode each.
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <iostream>

#include "cli/kubernetes/dra/driver.h"
#include "cli/kubernetes/options.h"
#include "cli/kubernetes/plugin/plugin.h"
#include "cli/kubernetes/report.h"
#include "core/base/end_signals.h"
#include "core/base/event_loop.h"
#include "core/base/log.h"
#include "core/base/printable.h"
#include "core/base/standard_streams.h"
#include "core/serve/http.h"

namespace {

using namespace vrdma::cli::kubernetes;
using vrdma::base::Fd;
using vrdma::base::Result;

// As vrdmad's log.
void start_log() {
  spdlog::set_default_logger(spdlog::stderr_logger_mt("vrdma-device-plugin"));
  spdlog::set_pattern(::isatty(STDERR_FILENO) ? "%H:%M:%S %l %v" : "%Y-%m-%dT%H:%M:%S%z %l %v");
  vrdma::base::set_log([](vrdma::base::LogLevel level, const std::string& sentence) {
    spdlog::log(level == vrdma::base::LogLevel::kInfo ? spdlog::level::info : spdlog::level::warn,
                "{}", vrdma::base::printable(sentence));
  });
}

// Until a signal. `Mode`: Plugin or Driver.
template <class Mode>
Result<void> serve(vrdma::base::EventLoop& loop, const typename Mode::Places& places,
                   const std::string& listen) {
  const auto mode = Mode::start(loop, places);
  if (!mode) return vrdma::base::pass(mode.error());
  std::unique_ptr<vrdma::serve::HttpServer> http;
  if (!listen.empty()) {
    auto serving = vrdma::serve::HttpServer::start(
        loop, listen, vrdma::serve::HttpServer::Reach::kNetwork,
        [&](const vrdma::serve::HttpRequest& request,
            const vrdma::serve::HttpServer::Answer& answer) {
          const auto status = (*mode)->status();
          answer(answer_to(request.path, metrics_text(status), status.not_ready));
        });
    if (!serving) return vrdma::base::pass(std::move(serving).error(), "--listen");
    http = std::move(*serving);
  }
  spdlog::info("vrdma-device-plugin {} is ready", VRDMA_VERSION);
  loop.run();
  spdlog::info("stopping");
  return {};
}

Result<void> run(const Options& options) {
  const auto signals = vrdma::base::catch_end_signals();
  if (!signals) return vrdma::base::pass(signals.error());
  const auto created = vrdma::base::EventLoop::create();
  if (!created) return vrdma::base::pass(created.error());
  auto& loop = **created;
  const auto stop = loop.watch(signals->get(), EPOLLIN, [&](uint32_t) { loop.stop(); });
  if (!stop) return vrdma::base::pass(stop.error());
  return options.dra ? serve<Driver>(loop, options.driver, options.listen)
                     : serve<Plugin>(loop, options.plugin, options.listen);
}

}  // namespace

int main(int argc, char** argv) {
  vrdma::base::fill_standard_streams(true);
  Options options;
  int status = 0;
  if (!parse(argc, argv, &options, &status)) return status;
  start_log();
  const auto result = run(options);
  if (result) return 0;
  std::cerr << "vrdma-device-plugin: " << result.error().message() << "\n";
  return 1;
}
