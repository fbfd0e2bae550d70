// Runs vrdmactl against the daemon's admin server in another process.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

namespace vrdma::cli {

namespace fs = std::filesystem;

// Paths of the programs; vrdmactl_test.cc.
extern const char* const kVrdmactl;
extern const char* const kFakeVrdmad;

struct Ran {
  int status = -1;
  std::string out, err;
};

inline std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline pid_t spawn(const std::vector<std::string>& words, const std::string& out,
                   const std::string& err) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  if (::freopen(out.c_str(), "w", stdout) == nullptr) ::_exit(99);
  if (::freopen(err.c_str(), "w", stderr) == nullptr) ::_exit(99);
  std::vector<char*> arguments;
  for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execv(arguments[0], arguments.data());
  ::_exit(98);
}

// The socket's existence proves nothing, because a killed daemon leaves it. The test must not
// connect to it either: some tests examine a daemon that had no client yet.
inline bool listens(const std::string& path) {
  std::istringstream sockets(content_of("/proc/net/unix"));
  for (std::string line; std::getline(sockets, line);)
    if (line.ends_with(' ' + path) && line.find(" 00010000 ") != std::string::npos) return true;
  return false;
}

class Vrdmactl : public testing::Test {
 protected:
  Vrdmactl() {
    std::string name = "/tmp/vrdma-test-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    temp_ = name;
    ::setenv("VRDMA_RUN_DIR", run_dir().c_str(), 1);
  }
  ~Vrdmactl() override {
    if (daemon_ > 0) stop_daemon();
    fs::remove_all(temp_);
  }

  std::string run_dir() const { return temp_ + "/run"; }

  void start_daemon() {
    daemon_ = spawn({kFakeVrdmad, run_dir()}, temp_ + "/daemon.out", temp_ + "/daemon.err");
    for (int i = 0; i < 3000 && !listens(run_dir() + "/admin.sock"); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  // Returns its exit status.
  int stop_daemon() {
    ::kill(daemon_, SIGTERM);
    int status = -1;
    ::waitpid(daemon_, &status, 0);
    daemon_ = -1;
    return status;
  }

  Ran run(std::vector<std::string> words) {
    words.insert(words.begin(), kVrdmactl);
    const pid_t child = spawn(words, temp_ + "/out", temp_ + "/err");
    int status = -1;
    ::waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status),
            content_of(temp_ + "/out"), content_of(temp_ + "/err")};
  }
  // Expects failure with this status and this one line, and no other output.
  void expect_failure(const std::vector<std::string>& words, int status, const std::string& line) {
    const Ran ran = run(words);
    EXPECT_EQ(ran.status, status) << ran.err;
    EXPECT_EQ(ran.err, "vrdmactl: " + line + "\n");
    EXPECT_EQ(ran.out, "");
  }
  static std::string nobody_in(const std::string& run_dir) {
    return "vrdmad is not running: nothing listens on " + run_dir +
           "/admin.sock; start it, or name its run directory with --run-dir";
  }
  static std::string own_netns() { return "pid:" + std::to_string(::getpid()); }
  void create(const std::string& name) {
    const Ran ran = run({"vdev", "create", name, "--netns", own_netns(), "--netdev", "lo"});
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.out + ran.err, "");
  }

  size_t daemon_tasks() const {
    const fs::directory_iterator tasks("/proc/" + std::to_string(daemon_) + "/task");
    return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
  }
  // The lines with this prefix in /proc/PID/status.
  std::string daemon_status(const std::string& key) const {
    std::ifstream file("/proc/" + std::to_string(daemon_) + "/status");
    for (std::string line; std::getline(file, line);)
      if (line.rfind(key, 0) == 0) return line;
    return "";
  }

  std::string temp_;
  pid_t daemon_ = -1;
};

}  // namespace vrdma::cli
