#include "cli/sandbox/listening.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <sstream>

namespace vrdma::cli::sandbox {

namespace {

constexpr int kPatienceMs = 5'000;  // for vrdmactl

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

bool has_listener(const std::string& proc_net_tcp) {
  std::istringstream lines(proc_net_tcp);
  std::string line;
  std::getline(lines, line);  // titles
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string slot, local, remote, state;
    if (words >> slot >> local >> remote >> state && state == "0A") return true;
  }
  return false;
}

bool Listening::check(const Signals& signals) {
  const std::string net = "/proc/" + std::to_string(process_) + "/net/";
  for (const char* file : {"tcp", "tcp6"})
    if (has_listener(content_of(net + file))) return true;
  return ++calls_ % 10 == 0 && by_rdma_cm(signals);
}

bool Listening::by_rdma_cm(const Signals& signals) const {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return false;
  const base::Fd read_end(ends[0]);
  base::Fd write_end(ends[1]);
  Start what;
  what.words = {vrdmactl_, "--run-dir", run_dir_, "conn", "list", vdevice_};
  what.output = write_end.get();
  what.no_input = true;
  const auto child = start(what, signals);
  write_end.reset();
  if (!child) return false;
  std::string text;
  std::array<char, 4096> part{};
  pollfd waiting{read_end.get(), POLLIN, 0};
  ssize_t got = 0;
  while (::poll(&waiting, 1, kPatienceMs) > 0 &&
         (got = ::read(read_end.get(), part.data(), part.size())) > 0)
    text.append(part.data(), static_cast<size_t>(got));
  if (waiting.revents == 0) ::kill(*child, SIGKILL);
  return wait_for(*child) == 0 && text.find("LISTEN") != std::string::npos;
}

}  // namespace vrdma::cli::sandbox
