// A Daemon in a network namespace of the test's own, whose only netdev is lo.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "netns/monitor.h"
#include "netns/netns.h"
#include "tests/unit/vrdmad/admin/fixture.h"
#include "tests/unit/vrdmad/enter_own_netns.h"
#include "tests/unit/vrdmad/worker/program.h"
#include "vrdmad/broker/local_broker.h"
#include "vrdmad/control/daemon.h"

namespace vrdma::vrdmad {

class OwnNetns : public testing::Test {
 protected:
  void SetUp() override {
    if (!enter_own_netns()) GTEST_SKIP() << "no network namespace";
    SessionSettings settings;
    settings.broker = std::make_shared<LocalBroker>();
    auto monitor = netns::Monitor::create(loop_.get());
    ASSERT_TRUE(monitor) << monitor.error().message();
    auto started = Daemon::start(
        *loop_, run_dir_, *store_, settings, {Isolation::kTenant, 1},
        {std::move(*monitor), std::make_unique<StoreThread>(*store_),
         worker_threads(*loop_, settings.broker), std::make_unique<HostProcesses>(*loop_),
         std::make_unique<AsideThread>(), parents()},
        std::make_shared<api::ClassFile>(classes_));
    ASSERT_TRUE(started) << started.error().message();
    daemon_ = std::move(*started);
    thread_ = std::thread([this] { loop_->run(); });
  }
  void TearDown() override {
    if (!thread_.joinable()) return;
    loop_->stop();
    thread_.join();
    daemon_.reset();
  }

  virtual std::vector<std::unique_ptr<Parent>> parents() { return find_parents(); }

  static VdevSpec spec(const std::string& name) {
    VdevSpec spec;
    spec.name = name;
    spec.netns = "pid:" + std::to_string(::getpid());
    spec.netdev = "lo";
    return spec;
  }
  // `number`: how many vdevices were there before.
  [[nodiscard]] Program program(unsigned number = 0) const {
    const uint64_t cookie = netns::current()->cookie;
    const std::string path = run_dir_.path() + "/netns/" + std::to_string(cookie) + "/" +
                             std::to_string(number) + ".sock";
    base::Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0)
        << path;
    return Program(std::move(socket));
  }
  TempDir temp_;
  const std::string classes_ = temp_.path() + "/classes.conf";
  RunDir run_dir_ = RunDir::open(temp_.path() + "/run").value();
  std::unique_ptr<Store> store_ = Store::open(temp_.path() + "/store").value();
  std::unique_ptr<base::EventLoop> loop_ = base::EventLoop::create().value();
  std::unique_ptr<Daemon> daemon_;
  std::thread thread_;
};

}  // namespace vrdma::vrdmad
