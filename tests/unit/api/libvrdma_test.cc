// The C API over a FakeBackend: data passed through it, errors, threads and fork.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vrdma/vrdma.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/unit/vrdmad/admin/fixture.h"

namespace vrdma::api {
namespace {

using testing::HasSubstr;
using testing::StrEq;

class LibvrdmaTest : public vrdmad::AdminFixture {
 protected:
  LibvrdmaTest() { ::setenv("VRDMA_RUN_DIR", run_dir_->path().c_str(), 1); }
  ~LibvrdmaTest() override { ::unsetenv("VRDMA_RUN_DIR"); }

  static void expect_error(int result, int code, const char* sentence) {
    EXPECT_EQ(result, -1);
    EXPECT_EQ(errno, code);
    EXPECT_THAT(vrdma_last_error(), HasSubstr(sentence));
  }
};

extern "C" int vrdma_h_in_c();
TEST(LibvrdmaHeader, is_the_same_in_c) { EXPECT_EQ(vrdma_h_in_c(), 1); }

TEST_F(LibvrdmaTest, everything_that_is_said_arrives) {
  const vrdma_limit quota[] = {{"qp", 7}, {"mr", VRDMA_NO_LIMIT}};
  const char* const allow[] = {"raw-packet"};
  vrdma_vdevice_spec spec = VRDMA_VDEVICE_SPEC_INIT;
  spec.name = "red0";
  spec.netdev = "eth0";
  spec.netns = "/run/netns/red";
  spec.tenant = "red";
  spec.fabric = "shared";
  spec.quota = quota;
  spec.quota_count = 2;
  spec.allow = allow;
  spec.allow_count = 1;
  const vrdma_label labels[] = {{"pod", "red-0"}, {"container", "c0ffee"}};
  spec.labels = labels;
  spec.label_count = 2;
  spec.owner_pid = 42;
  spec.owner_start_time = 7;
  spec.end_with_owner = 1;
  ASSERT_EQ(vrdma_create_vdevice(&spec), 0) << vrdma_last_error();

  size_t count = 0;
  vrdma_vdevice** const list = vrdma_get_vdevice_list(&count);
  ASSERT_NE(list, nullptr) << vrdma_last_error();
  ASSERT_EQ(count, 1U);
  EXPECT_EQ(list[1], nullptr);
  const vrdma_vdevice& red = *list[0];
  EXPECT_THAT(red.name, StrEq("red0"));
  EXPECT_THAT(red.parent, StrEq("soft"));
  EXPECT_THAT(red.tenant, StrEq("red"));
  EXPECT_THAT(red.fabric, StrEq("shared"));
  EXPECT_THAT(red.netns, StrEq("/run/netns/red"));
  EXPECT_THAT(red.netdev, StrEq("eth0"));
  EXPECT_THAT(red.node_guid, StrEq("0211:22ff:fe33:4455"));
  EXPECT_THAT(red.port_state, StrEq("ACTIVE"));
  EXPECT_THAT(red.socket, StrEq("/run/vrdma/netns/1/0.sock"));
  EXPECT_EQ(red.netns_cookie, 4026532000U);
  EXPECT_EQ(red.ifindex, 2U);
  EXPECT_EQ(red.active_mtu, 1024U);
  ASSERT_EQ(red.gid_count, 2U);
  EXPECT_THAT(red.gids[1], StrEq("::ffff:10.0.0.1"));
  ASSERT_EQ(red.quota_count, 3U);
  EXPECT_THAT(red.quota[0].kind, StrEq("qp"));
  EXPECT_EQ(red.quota[0].used, 2U);
  EXPECT_EQ(red.quota[0].limit, 7U);
  EXPECT_EQ(red.quota[1].limit, VRDMA_NO_LIMIT);
  ASSERT_EQ(red.allowed_count, 1U);
  EXPECT_THAT(red.allowed[0], StrEq("raw-packet"));
  EXPECT_EQ(red.id, 1U);
  ASSERT_EQ(red.label_count, 2U);
  EXPECT_THAT(red.labels[0].key, StrEq("container"));
  EXPECT_THAT(red.labels[0].value, StrEq("c0ffee"));
  EXPECT_THAT(red.labels[1].key, StrEq("pod"));
  EXPECT_EQ(red.owner_pid, 42U);
  EXPECT_EQ(red.owner_start_time, 7U);
  EXPECT_EQ(red.owner_ended, 0);
  EXPECT_EQ(red.end_with_owner, 1);
  vrdma_free_vdevice_list(list);
  vrdma_free_vdevice_list(nullptr);
}

TEST_F(LibvrdmaTest, the_short_form_takes_this_threads_namespace) {
  ASSERT_EQ(ibv_create_virtual_ibdev(nullptr, "eth0", "red0"), 0) << vrdma_last_error();
  vrdma_vdevice** const list = vrdma_get_vdevice_list(nullptr);
  ASSERT_NE(list, nullptr);
  // By the name from ip-netns(8) if there is one, otherwise by a process.
  const std::string netns = list[0]->netns;
  const std::string path =
      netns.rfind("pid:", 0) == 0 ? "/proc/" + netns.substr(4) + "/ns/net" : "/run/netns/" + netns;
  struct stat named {
  }, own{};
  EXPECT_EQ(::stat(path.c_str(), &named), 0) << path;
  EXPECT_EQ(::stat("/proc/thread-self/ns/net", &own), 0);
  EXPECT_EQ(named.st_ino, own.st_ino);
  vrdma_free_vdevice_list(list);
  EXPECT_EQ(ibv_destroy_virtual_ibdev("red0"), 0);
}

TEST_F(LibvrdmaTest, a_name_means_the_vdevice_of_the_callers_namespace) {
  vrdma_vdevice_spec elsewhere = VRDMA_VDEVICE_SPEC_INIT;
  elsewhere.name = "mlx5_0";
  elsewhere.netdev = "eth0";
  elsewhere.netns = "blue";
  const vrdma_limit limit{"qp", 9};
  ASSERT_EQ(vrdma_create_vdevice(&elsewhere), 0) << vrdma_last_error();
  elsewhere.if_absent = 1;
  EXPECT_EQ(vrdma_create_vdevice(&elsewhere), 0) << vrdma_last_error();
  EXPECT_EQ(ibv_provision_resources("mlx5_0", &limit, 1), 0) << "no other vdevice has the name";
  ASSERT_EQ(ibv_create_virtual_ibdev(nullptr, "eth0", "mlx5_0"), 0) << vrdma_last_error();
  const vrdma_limit own{"qp", 5};
  EXPECT_EQ(ibv_provision_resources("mlx5_0", &own, 1), 0) << vrdma_last_error();
  EXPECT_EQ(backend_->get_vdev("blue/mlx5_0")->quota[0].limit, 9U);
  EXPECT_EQ(backend_->get_vdev("id:2")->quota[0].limit, 5U);
  EXPECT_EQ(ibv_destroy_virtual_ibdev("mlx5_0"), 0) << vrdma_last_error();
  EXPECT_EQ(backend_->get_vdev("mlx5_0")->netns, "blue");
  elsewhere.netns = "green";
  ASSERT_EQ(vrdma_create_vdevice(&elsewhere), 0);
  expect_error(ibv_destroy_virtual_ibdev("mlx5_0"), ENOTUNIQ, "several vdevices");
  EXPECT_EQ(ibv_destroy_virtual_ibdev("green/mlx5_0"), 0) << vrdma_last_error();
}

TEST_F(LibvrdmaTest, errors_are_an_errno_and_a_sentence) {
  expect_error(ibv_destroy_virtual_ibdev("x"), ENOENT, "no vdevice is named x");
  expect_error(ibv_destroy_virtual_ibdev(nullptr), ENOENT, "no vdevice is named");
  expect_error(ibv_create_virtual_ibdev("mlx5_9", "eth0", "x"), ENODEV, "mlx5_9");
  expect_error(ibv_create_virtual_ibdev(nullptr, "missing", "x"), ENODEV, "missing");
  expect_error(ibv_create_virtual_ibdev(nullptr, nullptr, "x"), EINVAL, "a name and a netdev");
  expect_error(ibv_get_device_type(nullptr), EINVAL, "null");
  ASSERT_EQ(ibv_create_virtual_ibdev(nullptr, "eth0", "red0"), 0);
  expect_error(ibv_create_virtual_ibdev(nullptr, "eth0", "red0"), EEXIST, "exists already");
  const vrdma_limit low{"qp", 1}, odd{"nonsense", 1}, unnamed{nullptr, 1};
  expect_error(ibv_provision_resources("red0", &low, 1), EBUSY, "2 qp in use, more than 1");
  expect_error(ibv_provision_resources("red0", &odd, 1), EINVAL, "nonsense");
  expect_error(ibv_provision_resources("red0", &unnamed, 1), EINVAL, "no kind");
  expect_error(ibv_provision_resources("red0", nullptr, 1), EINVAL, "null");
  expect_error(ibv_provision_resources("red0", nullptr, 0), EINVAL, "no limit");
  expect_error(vrdma_create_vdevice(nullptr), EINVAL, "null");
  backend_->fail_with(4095, std::string(5000, 'x'));
  expect_error(ibv_destroy_virtual_ibdev("red0"), 4095, "xxxxx");
  EXPECT_EQ(std::string(vrdma_last_error()).size(), 1023U) << "cut, not overrun";
}

TEST_F(LibvrdmaTest, a_program_of_before_or_after_is_told_by_its_size) {
  vrdma_vdevice_spec spec = VRDMA_VDEVICE_SPEC_INIT;
  spec.name = "red0";
  spec.netdev = "eth0";
  spec.tenant = reinterpret_cast<const char*>(1);  // must not be dereferenced
  spec.size = offsetof(vrdma_vdevice_spec, tenant);
  EXPECT_EQ(vrdma_create_vdevice(&spec), 0) << vrdma_last_error();
  spec.size = sizeof spec + 8;
  expect_error(vrdma_create_vdevice(&spec), EINVAL, "size");
  spec.size = 0;
  expect_error(vrdma_create_vdevice(&spec), EINVAL, "size");
}

TEST_F(LibvrdmaTest, a_watch_tells_and_waits) {
  vrdma_watch* const watch = vrdma_watch_open();
  ASSERT_NE(watch, nullptr) << vrdma_last_error();
  vrdma_event* event = nullptr;
  EXPECT_EQ(vrdma_watch_next(watch, 0, &event), 0);
  EXPECT_EQ(vrdma_watch_next(watch, 20, &event), 0);
  ASSERT_EQ(ibv_create_virtual_ibdev(nullptr, "eth0", "red0"), 0);
  ASSERT_EQ(ibv_destroy_virtual_ibdev("red0"), 0);
  pollfd ready{vrdma_watch_fd(watch), POLLIN, 0};
  EXPECT_EQ(::poll(&ready, 1, 5000), 1);
  ASSERT_EQ(vrdma_watch_next(watch, 5000, &event), 1) << vrdma_last_error();
  EXPECT_EQ(event->type, VRDMA_VDEVICE_ADDED);
  EXPECT_THAT(event->reason, StrEq("created"));
  EXPECT_THAT(event->vdevice->name, StrEq("red0"));
  vrdma_free_event(event);
  ASSERT_EQ(vrdma_watch_next(watch, -1, &event), 1);
  EXPECT_EQ(event->type, VRDMA_VDEVICE_REMOVED);
  vrdma_free_event(event);
  EXPECT_EQ(::poll(&ready, 1, 0), 0) << "no event is left";

  stop();
  ASSERT_EQ(vrdma_watch_next(watch, 5000, &event), -1);
  EXPECT_EQ(errno, ECONNRESET) << vrdma_last_error();
  EXPECT_EQ(vrdma_watch_next(watch, 5000, &event), -1) << "the failure is permanent";
  vrdma_watch_close(watch);
  vrdma_watch_close(nullptr);
  EXPECT_EQ(vrdma_watch_open(), nullptr);
  EXPECT_EQ(errno, ECONNREFUSED);
  EXPECT_THAT(vrdma_last_error(), HasSubstr("vrdmad is not running"));
}

TEST_F(LibvrdmaTest, a_signal_does_not_fail_a_watch) {
  static std::atomic<int> handled;
  handled = 0;
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) { ++handled; };
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
  vrdma_watch* const watch = vrdma_watch_open();
  ASSERT_NE(watch, nullptr) << vrdma_last_error();
  std::thread disturber([waiter = ::pthread_self()] {
    while (handled < 20) {
      ::pthread_kill(waiter, SIGUSR1);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(ibv_create_virtual_ibdev(nullptr, "eth0", "red0"), 0);
  });
  vrdma_event* event = nullptr;
  EXPECT_EQ(vrdma_watch_next(watch, -1, &event), 1) << vrdma_last_error();
  vrdma_free_event(event);
  disturber.join();
  vrdma_watch_close(watch);
  EXPECT_EQ(::sigaction(SIGUSR1, &before, nullptr), 0);
}

TEST_F(LibvrdmaTest, threads_have_errors_of_their_own) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([i] {
      const std::string name = "v" + std::to_string(i);
      for (int round = 0; round < 5; ++round) {
        EXPECT_EQ(ibv_create_virtual_ibdev(nullptr, "eth0", name.c_str()), 0) << vrdma_last_error();
        expect_error(ibv_create_virtual_ibdev(nullptr, "eth0", name.c_str()), EEXIST, name.c_str());
        EXPECT_EQ(ibv_destroy_virtual_ibdev(name.c_str()), 0) << vrdma_last_error();
      }
    });
  for (auto& thread : threads) thread.join();
}

TEST_F(LibvrdmaTest, no_thread_of_the_library_takes_the_programs_signals) {
  vrdma_watch* const watch = vrdma_watch_open();
  ASSERT_NE(watch, nullptr);
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status"), comm(task.path() / "comm");
    std::string name;
    std::getline(comm, name);
    if (name != "vrdma-watch") continue;
    std::string line, blocked;
    while (std::getline(status, line))
      if (line.rfind("SigBlk:", 0) == 0) blocked = line.substr(8);
    const uint64_t mask = std::stoull(blocked, nullptr, 16);
    EXPECT_NE(mask & (1ULL << (SIGINT - 1)), 0U);
    EXPECT_NE(mask & (1ULL << (SIGALRM - 1)), 0U);
  }
  sigset_t own;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &own);
  EXPECT_EQ(sigismember(&own, SIGINT), 0) << "the program's own mask is unchanged";
  vrdma_watch_close(watch);
}

// ThreadSanitizer does not support threads that are started after a fork.
#ifndef __SANITIZE_THREAD__

// A daemon in another process, so that in this one only the library uses gRPC.
class LibvrdmaForkTest : public testing::Test {
 protected:
  LibvrdmaForkTest() {
    daemon_ = ::fork();
    if (daemon_ == 0) {
      ::execl(FAKE_VRDMAD, FAKE_VRDMAD, temp_.path().c_str(), nullptr);
      ::_exit(127);
    }
    ::setenv("VRDMA_RUN_DIR", temp_.path().c_str(), 1);
    EXPECT_TRUE(vrdmad::eventually([] { return list() == 0; })) << vrdma_last_error();
  }
  ~LibvrdmaForkTest() override {
    ::kill(daemon_, SIGTERM);
    ::waitpid(daemon_, nullptr, 0);
    ::unsetenv("VRDMA_RUN_DIR");
  }

  // 0, or the errno.
  static int list() {
    vrdma_vdevice** const vdevices = vrdma_get_vdevice_list(nullptr);
    if (vdevices == nullptr) return errno;
    vrdma_free_vdevice_list(vdevices);
    return 0;
  }
  // gRPC's last threads are detached and end after the call. ASan of gcc 12 takes their memory back
  // under a lock that its own fork handlers leave out: a child that is forked meanwhile would find
  // it locked forever. Without ASan there is nothing to wait for.
  static void wait_for_grpcs_threads() {
#ifdef __SANITIZE_ADDRESS__
    EXPECT_TRUE(vrdmad::eventually([] {
      return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}) == 1;
    }));
#endif
  }
  // Returns the result of `work` in a child, or -1 if it has none within 30 s.
  template <class Work>
  static int in_child(Work work) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(work());
    int status = 0;
    // The child itself cannot tell: a call blocks all signals, SIGALRM among them.
    if (!vrdmad::eventually([&] { return ::waitpid(child, &status, WNOHANG) == child; })) {
      ADD_FAILURE() << "the child hangs";
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  vrdmad::TempDir temp_;
  pid_t daemon_ = -1;
};

TEST_F(LibvrdmaForkTest, between_calls_parent_and_child_both_go_on) {
  for (int i = 0; i < 5; ++i) {
    wait_for_grpcs_threads();
    EXPECT_EQ(in_child(list), 0);
    EXPECT_EQ(list(), 0) << vrdma_last_error();
  }
}

TEST_F(LibvrdmaForkTest, with_a_watch_open_the_child_is_told) {
  vrdma_watch* const watch = vrdma_watch_open();
  ASSERT_NE(watch, nullptr) << vrdma_last_error();
  EXPECT_EQ(in_child([watch] {
              const int error = list();
              vrdma_watch_close(watch);  // does nothing
              return error;
            }),
            EDEADLK);
  EXPECT_EQ(list(), 0) << vrdma_last_error();
  vrdma_watch_close(watch);
  wait_for_grpcs_threads();
  EXPECT_EQ(in_child(list), 0);
}

#endif

}  // namespace
}  // namespace vrdma::api
