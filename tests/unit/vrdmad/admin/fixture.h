// A run directory in /tmp, a control thread, a FakeBackend and an AdminServer, in this process.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "api/keep_grpc.h"
#include "core/base/event_loop.h"
#include "tests/unit/vrdmad/admin/fake_backend.h"
#include "vrdmad/admin/server.h"
#include "vrdmad/control/run_dir.h"

namespace vrdma::vrdmad {

// A directory that any user may traverse, removed with its content.
class TempDir {
 public:
  TempDir() {
    std::string name = "/tmp/vrdma-test-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr || ::chmod(name.c_str(), 0755) != 0) std::abort();
    path_ = name;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// True when `condition` becomes true, false if it does not within 30 s.
template <class Condition>
[[nodiscard]] bool eventually(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

class AdminFixture : public testing::Test {
 protected:
  AdminFixture() {
    run_dir_.emplace(RunDir::open(temp_.path() + "/run").value());
    loop_ = base::EventLoop::create().value();
    backend_ = std::make_unique<FakeBackend>(*loop_);
    server_ = AdminServer::start(*loop_, *backend_, run_dir_->admin_socket()).value();
    control_ = std::thread([this] { loop_->run(); });
  }
  ~AdminFixture() override {
    stop();
    api::release_grpc();  // vrdmad ends instead, but a test that forks wants no threads of it
  }

  // Shuts down as vrdmad does.
  void stop() {
    if (!control_.joinable()) return;
    loop_->post([this] { server_->stop([this] { loop_->stop(); }); });
    control_.join();
    server_.reset();
  }

  // Runs `work` on the control thread and returns its result.
  template <class Work>
  auto on_control(Work work) {
    // Shared by both threads: the waiting one may return before set_value() does.
    const auto promise = std::make_shared<std::promise<decltype(work())>>();
    auto future = promise->get_future();
    loop_->post([promise, work = std::move(work)]() mutable { promise->set_value(work()); });
    return future.get();
  }
  bool idle() {
    return on_control([this] { return server_->idle(); });
  }

  TempDir temp_;
  std::optional<RunDir> run_dir_;
  std::unique_ptr<base::EventLoop> loop_;
  std::unique_ptr<FakeBackend> backend_;
  std::unique_ptr<AdminServer> server_;
  std::thread control_;
};

}  // namespace vrdma::vrdmad
