#include "vrdmad/admin/server.h"

#include <grpc/grpc.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <atomic>
#include <future>
#include <vector>

#include "api/client.h"
#include "tests/unit/vrdmad/admin/fixture.h"

namespace vrdma::vrdmad {
namespace {

class AdminServerTest : public AdminFixture {
 protected:
  api::Client connect() { return api::Client::connect(run_dir_->path()).value(); }
};

int raw_connection(const std::string& path) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, path.size());
  return ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 ? fd : -1;
}

TEST_F(AdminServerTest, the_socket_is_for_the_owner_alone) {
  struct stat status {};
  ASSERT_EQ(::stat(run_dir_->admin_socket().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600U);
}

TEST_F(AdminServerTest, grpc_lives_from_the_first_client_to_the_last) {
  EXPECT_TRUE(idle());
  for (int round = 0; round < 3; ++round) {
    {
      auto first = connect();
      EXPECT_TRUE(first.list_vdevs());
      EXPECT_FALSE(idle());
      {
        auto second = connect();
        EXPECT_TRUE(second.list_vdevs());
      }
      EXPECT_TRUE(eventually([&] { return on_control([&] { return server_->clients(); }) == 1; }));
      EXPECT_TRUE(first.list_vdevs());
      EXPECT_FALSE(idle());
    }
    EXPECT_TRUE(eventually([&] { return idle(); }));
  }
}

// Its end may take 10 s, for which the next client would wait.
TEST_F(AdminServerTest, the_library_of_grpc_stays_between_two_clients) {
  const int client = raw_connection(run_dir_->admin_socket());
  EXPECT_TRUE(eventually([&] { return !idle(); }));
  ::close(client);
  EXPECT_TRUE(eventually([&] { return idle(); }));
  EXPECT_NE(grpc_is_initialized(), 0);
}

TEST_F(AdminServerTest, clients_that_come_and_go_at_once_are_all_served) {
  std::atomic<int> served = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int j = 0; j < 25; ++j)
        if (connect().list_vdevs()) ++served;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(served, 100);
  EXPECT_TRUE(eventually([&] { return idle(); }));
}

// As when a host starts a hundred containers at once.
TEST_F(AdminServerTest, calls_that_wait_for_the_control_thread_are_all_answered) {
  std::vector<api::Client> clients;
  for (int i = 0; i < 100; ++i) {
    clients.push_back(connect());
    ASSERT_TRUE(clients.back().list_vdevs());
  }
  std::promise<void> go_on;
  loop_->post([wait = go_on.get_future().share()] { wait.wait(); });
  std::atomic<int> answered = 0;
  std::vector<std::thread> threads;
  for (auto& client : clients)
    threads.emplace_back([&] {
      const auto list = client.list_vdevs();
      if (list) ++answered;
      EXPECT_TRUE(list) << list.error().message();
    });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // most calls have begun by then
  go_on.set_value();
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(answered, 100);
}

TEST_F(AdminServerTest, a_client_that_speaks_no_grpc_harms_nobody) {
  const int silent = raw_connection(run_dir_->admin_socket());
  const int rude = raw_connection(run_dir_->admin_socket());
  ASSERT_GE(silent, 0);
  ASSERT_EQ(::send(rude, "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
  EXPECT_TRUE(connect().list_vdevs());
  char byte = 0;
  while (::recv(rude, &byte, 1, 0) > 0) {
  }  // the watcher gets the error and disconnects
  EXPECT_FALSE(idle()) << "the silent client is still connected";
  ::close(silent);
  ::close(rude);
  EXPECT_TRUE(eventually([&] { return idle(); }));
}

TEST_F(AdminServerTest, other_users_are_turned_away_and_counted) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  // Opens the socket to all users: its mode is not the only guard.
  ASSERT_EQ(::chmod(run_dir_->admin_socket().c_str(), 0666), 0);
  const std::string path = run_dir_->admin_socket();
  const pid_t child = ::fork();
  if (child == 0) {
    char byte = 0;
    if (::setuid(65534) != 0) ::_exit(1);
    const int fd = raw_connection(path);
    ::_exit(fd >= 0 && ::recv(fd, &byte, 1, 0) == 0 ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the connection is closed silently";
  EXPECT_EQ(server_->refused(), 1U);
  EXPECT_TRUE(idle());
  const auto counters = connect().counters("daemon").value();
  bool counted = false;
  for (const auto& row : counters)
    counted = counted || (row.name() == "admin_clients_refused" && row.value() == 1);
  EXPECT_TRUE(counted);
}

TEST_F(AdminServerTest, ends_in_order_while_watchers_are_connected) {
  VdevSpec spec;
  spec.name = "red0";
  ASSERT_TRUE(backend_->create_vdev(spec, false));
  std::atomic<int> seen = 0;
  std::vector<std::thread> threads;
  std::vector<int> codes(3);
  for (auto& code : codes)
    threads.emplace_back([&] {
      const auto ended = connect().watch_vdevs([&](const v1::WatchEvent&) {
        ++seen;
        return true;
      });
      code = ended ? 0 : ended.error().code();
    });
  EXPECT_TRUE(eventually([&] { return seen == 3; }));
  stop();
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(codes, std::vector<int>(3, ECONNRESET));
  EXPECT_FALSE(std::filesystem::exists(run_dir_->admin_socket()));
}

TEST_F(AdminServerTest, a_watcher_that_goes_is_forgotten) {
  VdevSpec spec;
  spec.name = "red0";
  ASSERT_TRUE(backend_->create_vdev(spec, false));
  EXPECT_TRUE(connect().watch_vdevs([&](const v1::WatchEvent&) {
    EXPECT_EQ(backend_->watchers(), 1U);
    return false;
  }));
  EXPECT_TRUE(eventually([&] { return backend_->watchers() == 0; }));
  EXPECT_TRUE(eventually([&] { return idle(); }));
}

TEST_F(AdminServerTest, a_watcher_of_classes_gets_all_of_them_again_and_again) {
  ClassInfo small;
  small.name = "small";
  small.parent = "soft";
  small.devices = 3;
  small.quota = {{"qp", 64}};
  backend_->set_classes(std::vector{small});
  EXPECT_EQ(connect().list_classes()->at(0).quota(0).kind(), "qp");
  int answers = 0;
  const auto watched = connect().watch_classes([&](const v1::ListClassesResponse& all) {
    if (!all.error().empty()) {
      EXPECT_EQ(all.classes_size(), 0);
      EXPECT_EQ(all.error(), "c.conf: line 1 is no key");
      return false;
    }
    EXPECT_EQ(all.classes(0).devices(), 3U);
    EXPECT_FALSE(all.classes(0).has_numa_node());
    if (++answers == 2) backend_->set_classes(base::fail(EINVAL, "c.conf: line 1 is no key"));
    return true;
  });
  EXPECT_TRUE(watched) << watched.error().message();
  EXPECT_GE(answers, 2) << "also without a change";
  EXPECT_EQ(connect().list_classes().error().message(), "c.conf: line 1 is no key");
  EXPECT_TRUE(eventually([&] { return idle(); })) << "the stream ends with its client";
}

TEST_F(AdminServerTest, claims) {
  v1::Claim claim;
  claim.set_uid("u-1");
  claim.set_namespace_("shop");
  claim.set_name("web.rdma");
  auto& share = *claim.add_shares();
  share.set_id("data");
  share.set_class_("small");
  auto& limit = *share.add_quota();
  limit.set_kind("qp");
  limit.set_limit(~uint64_t{0});
  (*claim.mutable_labels())["team"] = "red";
  api::Client client = connect();
  const auto put = client.put_claim(claim);
  ASSERT_TRUE(put) << put.error().message();
  EXPECT_EQ(put->SerializeAsString(), claim.SerializeAsString()) << "all of it arrives and returns";
  auto all = client.list_claims();
  ASSERT_TRUE(all && all->size() == 2);
  EXPECT_EQ(all->front().uid(), "held");
  EXPECT_EQ(all->front().shares(0).vdevices(), 1U);
  EXPECT_EQ(all->back().SerializeAsString(), claim.SerializeAsString());
  claim.set_uid("held");
  EXPECT_EQ(client.put_claim(claim).error().code(), EBUSY);
  EXPECT_EQ(client.delete_claim("held").error().code(), EBUSY);
  EXPECT_TRUE(client.delete_claim("held", true));
  EXPECT_TRUE(client.delete_claim("u-1"));
  EXPECT_TRUE(client.delete_claim("u-1"));
  EXPECT_TRUE(client.list_claims()->empty());
}

TEST_F(AdminServerTest, parked_processes) {
  api::Client client = connect();
  EXPECT_EQ(client.park_process(4712).error().code(), ENOENT);
  const auto parked = client.park_process(4711);
  ASSERT_TRUE(parked) << parked.error().message();
  EXPECT_EQ(parked->pid(), 4711);
  EXPECT_EQ(parked->token(), "6f1a");
  ASSERT_EQ(parked->sessions_size(), 1);
  const auto& session = parked->sessions(0);
  EXPECT_EQ(session.vdev() + session.netns() + session.socket(), "red0red/run/0.sock");
  EXPECT_EQ(session.arena() + 10 * session.bells() + 100 * session.memory() +
                1000 * session.doorbell() + 10'000 * session.events(),
            54'321U);
  EXPECT_EQ(session.channels().at(6), 7U);
  ASSERT_EQ(parked->peers_size(), 1);
  EXPECT_EQ(parked->peers(0).pid(), 4712);
  EXPECT_TRUE(parked->peers(0).away());
  EXPECT_EQ(parked->peers(0).memory(), 13U);
  const auto shown = client.parked_process("6f1a");
  ASSERT_TRUE(shown) << shown.error().message();
  EXPECT_EQ(shown->SerializeAsString(), parked->SerializeAsString());
  EXPECT_EQ(client.parked_process("6f1b").error().code(), ENOENT);
  ASSERT_EQ(parked->connections_size(), 1);
  EXPECT_EQ(parked->connections(0).socket(), "/run/rdma_cm");
  ASSERT_EQ(parked->connections(0).channels_size(), 2);
  EXPECT_EQ(parked->connections(0).channels(1), 9U);

  EXPECT_TRUE(client.detach_process("6f1a"));
  EXPECT_EQ(backend_->last_step(), "detach");
  EXPECT_EQ(client.resume_process("x").error().code(), ENOENT);
  EXPECT_TRUE(client.resume_process("4711"));
  EXPECT_EQ(backend_->last_step(), "resume");
  EXPECT_TRUE(client.abandon_process("4711"));
  EXPECT_EQ(backend_->last_step(), "abandon");
  v1::ParkedProcess other = *parked;
  other.set_pid(4713);
  other.mutable_sessions(0)->set_arena(8);
  EXPECT_TRUE(client.attach_process(other));
  const ParkedProcess attached = backend_->attached();
  EXPECT_EQ(attached.pid, 4713);
  EXPECT_EQ(attached.sessions.at(0).files.arena, 8U);
  EXPECT_EQ(attached.sessions.at(0).files.channels.at(6), 7U);
  EXPECT_EQ(attached.connections.at(0).image, (std::vector<uint8_t>{0x2a, 0xff}));
}

TEST_F(AdminServerTest, the_end_of_the_server_ends_a_watch_of_classes) {
  std::promise<void> began;
  bool told = false;
  api::Client client = connect();
  std::thread watcher([&] {
    EXPECT_FALSE(client.watch_classes([&](const v1::ListClassesResponse&) {
      if (!told) began.set_value();
      told = true;
      return true;
    }));
  });
  began.get_future().wait();
  stop();
  watcher.join();
}

TEST_F(AdminServerTest, a_watcher_that_does_not_read_is_given_up) {
  VdevSpec spec;
  spec.name = "red0";
  ASSERT_TRUE(backend_->create_vdev(spec, false));
  int events = 0;
  const auto ended = connect().watch_vdevs([&](const v1::WatchEvent& event) {
    if (events++ == 0) {
      WatchEvent change;
      change.vdev.name = event.vdev().name();
      change.reason = std::string(1000, 'x');
      backend_->announce(change, 20'000);
    }
    return true;
  });
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code(), ENOSPC);
  EXPECT_EQ(ended.error().message(), "the watcher does not read its events");
  EXPECT_LT(events, 20'000);
  EXPECT_TRUE(eventually([&] { return backend_->watchers() == 0; }));
}

TEST_F(AdminServerTest, a_watcher_is_told_of_all_that_there_are) {
  constexpr int kVdevices = 5000;
  VdevSpec spec;
  for (int i = 0; i < kVdevices; ++i) {
    spec.name = "red" + std::to_string(i);
    ASSERT_TRUE(backend_->create_vdev(spec, false));
  }
  int events = 0;
  const auto watched =
      connect().watch_vdevs([&](const v1::WatchEvent&) { return ++events < kVdevices; });
  EXPECT_TRUE(watched) << watched.error().message();
  EXPECT_EQ(events, kVdevices);
}

TEST_F(AdminServerTest, a_second_server_on_the_path_says_so) {
  auto loop = base::EventLoop::create().value();
  const auto second = AdminServer::start(*loop, *backend_, run_dir_->admin_socket());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().message(),
            "bind " + run_dir_->admin_socket() + ": Address already in use");
  EXPECT_TRUE(connect().list_vdevs()) << "the first server still listens";
}

}  // namespace
}  // namespace vrdma::vrdmad
