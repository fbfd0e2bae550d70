// Every call of the API in both directions, and every way it can fail.
#include "api/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/vrdmad/admin/fixture.h"

namespace vrdma::api {
namespace {

using testing::HasSubstr;

class ClientTest : public vrdmad::AdminFixture {
 protected:
  Client client_ = Client::connect(run_dir_->path()).value();

  v1::Vdev create(const std::string& name) {
    v1::CreateVdevRequest request;
    request.set_name(name);
    request.set_netns("a");
    request.set_netdev("eth0");
    return client_.create_vdev(request).value();
  }
};

// The error of `result`, which must be an error.
template <class T>
void expect_error(const base::Result<T>& result, int code, const std::string& message) {
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), code);
  EXPECT_EQ(result.error().message(), message);
}

TEST_F(ClientTest, create_carries_every_field) {
  v1::CreateVdevRequest request;
  request.set_name("red0");
  request.set_netns("/run/netns/red");
  request.set_netdev("eth0");
  request.set_tenant("red");
  request.set_fabric("shared");
  auto& setting = *request.add_quota();
  setting.set_kind("qp");
  setting.set_limit(7);
  request.add_allow("raw-packet");
  const auto vdev = client_.create_vdev(request);
  ASSERT_TRUE(vdev) << vdev.error().message();
  EXPECT_EQ(vdev->name(), "red0");
  EXPECT_EQ(vdev->parent(), "soft") << "the default";
  EXPECT_EQ(vdev->tenant(), "red");
  EXPECT_EQ(vdev->fabric(), "shared");
  EXPECT_EQ(vdev->netns(), "/run/netns/red");
  EXPECT_EQ(vdev->netns_cookie(), 4026532000U);
  EXPECT_EQ(vdev->netdev(), "eth0");
  EXPECT_EQ(vdev->ifindex(), 2U);
  EXPECT_EQ(vdev->node_guid(), "0211:22ff:fe33:4455");
  EXPECT_EQ(vdev->port_state(), "ACTIVE");
  EXPECT_EQ(vdev->active_mtu(), 1024U);
  EXPECT_EQ(vdev->socket(), "/run/vrdma/netns/1/0.sock");
  ASSERT_EQ(vdev->gids_size(), 2);
  EXPECT_EQ(vdev->gids(1).index(), 1U);
  EXPECT_EQ(vdev->gids(1).gid(), "::ffff:10.0.0.1");
  EXPECT_EQ(vdev->gids(1).type(), "RoCE v2");
  ASSERT_EQ(vdev->quota_size(), 3);
  EXPECT_EQ(vdev->quota(0).kind(), "qp");
  EXPECT_EQ(vdev->quota(0).used(), 2U);
  EXPECT_EQ(vdev->quota(0).limit(), 7U);
  EXPECT_EQ(vdev->quota(2).limit(), uint64_t{1} << 34);
  ASSERT_EQ(vdev->allowed_size(), 1);
  EXPECT_EQ(vdev->allowed(0), "raw-packet");
}

TEST_F(ClientTest, list_is_sorted_and_get_finds) {
  for (const char* name : {"c", "a", "b"}) create(name);
  const auto vdevs = client_.list_vdevs();
  ASSERT_TRUE(vdevs);
  ASSERT_EQ(vdevs->size(), 3U);
  EXPECT_EQ((*vdevs)[0].name(), "a");
  EXPECT_EQ((*vdevs)[2].name(), "c");
  EXPECT_EQ(client_.get_vdev("b")->name(), "b");
  EXPECT_TRUE(client_.delete_vdev("b"));
  EXPECT_EQ(client_.list_vdevs()->size(), 2U);
}

TEST_F(ClientTest, set_quota_changes_what_is_named) {
  create("red0");
  v1::SetQuotaRequest request;
  request.set_name("red0");
  request.add_quota()->set_kind("mr");
  request.mutable_quota(0)->set_limit(~uint64_t{0});
  const auto vdev = client_.set_quota(request);
  ASSERT_TRUE(vdev);
  EXPECT_EQ(vdev->quota(0).limit(), 64U);
  EXPECT_EQ(vdev->quota(1).limit(), ~uint64_t{0});
  request.mutable_quota(0)->set_kind("qp");
  request.mutable_quota(0)->set_limit(1);
  expect_error(client_.set_quota(request), EBUSY, "vdevice red0 has 2 qp in use, more than 1");
}

TEST_F(ClientTest, labels_are_set_and_removed) {
  create("red0");
  v1::SetLabelsRequest request;
  request.set_name("red0");
  (*request.mutable_set())["team"] = "x";
  (*request.mutable_set())["stage"] = "test";
  ASSERT_TRUE(client_.set_labels(request));
  request.clear_set();
  request.add_remove("stage");
  const auto vdev = client_.set_labels(request);
  ASSERT_TRUE(vdev);
  EXPECT_EQ(vdev->labels_size(), 1);
  EXPECT_EQ(vdev->labels().at("team"), "x");
  (*request.mutable_set())["-"] = "";
  EXPECT_EQ(client_.set_labels(request).error().code(), EINVAL);
  EXPECT_EQ(client_.get_vdev("red0")->labels_size(), 1);
}

TEST_F(ClientTest, the_reach_of_a_fabric_is_set_and_seen) {
  create("red0");
  const std::string name = client_.get_vdev("red0")->fabric();
  EXPECT_EQ(client_.get_vdev("red0")->reach(), "host");
  v1::SetFabricRequest request;
  request.set_name(name);
  request.set_reach("network");
  const auto set = client_.set_fabric(request);
  ASSERT_TRUE(set) << set.error().message();
  EXPECT_EQ(set->name(), name);
  EXPECT_EQ(set->reach(), "network");
  EXPECT_EQ(client_.get_vdev("red0")->reach(), "network");
  const auto fabrics = client_.list_fabrics();
  ASSERT_TRUE(fabrics);
  ASSERT_EQ(fabrics->size(), 1U);
  EXPECT_EQ(fabrics->front().name(), name);
  EXPECT_EQ(fabrics->front().reach(), "network");
  EXPECT_EQ(fabrics->front().vdevices(), 1U);
  EXPECT_EQ(fabrics->front().gids(), 2U);
  request.set_reach("");
  expect_error(client_.set_fabric(request), EINVAL,
               "there is nothing to change of fabric '" + name + "': give its reach or its peers");
  request.set_reach("moon");
  expect_error(client_.set_fabric(request), EINVAL,
               "the reach of a fabric is host, network or wire, not 'moon'");
  EXPECT_EQ(client_.list_fabrics()->front().reach(), "network") << "it is unchanged";
}

TEST_F(ClientTest, the_peers_of_a_fabric_are_set_and_seen) {
  using testing::ElementsAre;
  create("red0");
  v1::SetFabricRequest request;
  request.set_name(client_.get_vdev("red0")->fabric());
  request.set_reach("network");
  EXPECT_THAT(client_.set_fabric(request)->peers(), ElementsAre());
  request.clear_reach();
  for (const char* prefix : {"10.1.2.3/8", "fd00::1"})
    request.mutable_peers()->add_prefixes(prefix);
  const auto set = client_.set_fabric(request);
  ASSERT_TRUE(set) << set.error().message();
  EXPECT_THAT(set->peers(), ElementsAre("10.0.0.0/8", "fd00::1/128"));
  EXPECT_EQ(set->reach(), "network") << "it is as it was";
  EXPECT_THAT(client_.get_vdev("red0")->peers(), ElementsAre("10.0.0.0/8", "fd00::1/128"));
  request.mutable_peers()->add_prefixes("10.0.0.0/33");
  expect_error(client_.set_fabric(request), EINVAL,
               "peers: '10.0.0.0/33' is not an address prefix such as 10.0.0.0/24 or fd00::/64");
  request.clear_peers();
  request.set_reach("wire");
  EXPECT_THAT(client_.set_fabric(request)->peers(), ElementsAre("10.0.0.0/8", "fd00::1/128"));
  request.mutable_peers();
  EXPECT_THAT(client_.set_fabric(request)->peers(), ElementsAre()) << "all";
}

// As many as a host may have. The answer exceeds gRPC's default limit of 4 MiB.
TEST_F(ClientTest, thousands_of_vdevices_are_answered_for) {
  constexpr size_t kVdevices = 4096;
#ifdef __SANITIZE_THREAD__
  constexpr int kRows = 15;  // which takes as long
#else
  constexpr int kRows = 150;
#endif
  vrdmad::VdevSpec spec;
  spec.netdev = "eth0";
  for (size_t i = 0; i < kVdevices; ++i) {
    spec.name = "a-vdevice-" + std::to_string(i);
    ASSERT_TRUE(backend_->create_vdev(spec, false));
  }
  backend_->add_counters(kRows);
  const auto counters = client_.counters("");
  ASSERT_TRUE(counters) << counters.error().message();
  EXPECT_GE(counters->size(), kVdevices * kRows);
  EXPECT_EQ(client_.list_vdevs().value().size(), kVdevices);
  EXPECT_EQ(client_.list_connections("").value().size(), 2 * kVdevices);
}

TEST_F(ClientTest, a_request_that_is_too_long_is_not_said_to_be_a_crowd) {
  v1::CreateVdevRequest request;
  request.set_netdev(std::string(5 << 20, 'x'));
  const auto made = client_.create_vdev(request);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), ENOMEM);
  EXPECT_THAT(made.error().message(), HasSubstr("larger than max"));
}

TEST_F(ClientTest, names_that_a_tenant_chose_do_no_harm) {
  vrdmad::VdevSpec spec;
  spec.name = "red0";
  spec.netdev = "e\xff\x1b[2J";
  ASSERT_TRUE(backend_->create_vdev(spec, false));
  const std::string shown = "e\\xff\\x1b[2J";
  EXPECT_EQ(client_.get_vdev("red0").value().netdev(), shown);
  EXPECT_EQ(client_.list_vdevs().value().at(0).netdev(), shown);
  const auto groups = client_.list_cgroups("");
  ASSERT_TRUE(groups) << groups.error().message();
  EXPECT_EQ(groups->at(0).cgroup(), "/" + shown + "/red0");
  std::vector<std::string> reasons;
  EXPECT_TRUE(client_.watch_vdevs([&](const v1::WatchEvent& event) {
    reasons.push_back(event.reason());
    vrdmad::WatchEvent renamed;
    renamed.vdev.netdev = renamed.vdev.lost = spec.netdev;
    renamed.reason = "netdev renamed to " + spec.netdev;
    if (reasons.size() < 2) {
      backend_->announce(renamed);
      return true;
    }
    EXPECT_EQ(event.vdev().lost(), shown);
    return false;
  }));
  EXPECT_EQ(reasons.back(), "netdev renamed to " + shown);
}

TEST_F(ClientTest, connections) {
  create("red0");
  create("blue0");
  const auto all = client_.list_connections("");
  ASSERT_TRUE(all);
  EXPECT_EQ(all->size(), 4U);
  const auto of_red = client_.list_connections("red0");
  ASSERT_TRUE(of_red);
  ASSERT_EQ(of_red->size(), 2U);
  const v1::Connection &listener = (*of_red)[0], &connection = (*of_red)[1];
  EXPECT_EQ(listener.state(), "LISTEN");
  EXPECT_EQ(listener.transport(), "");
  EXPECT_EQ(listener.waiting(), 1U);
  EXPECT_EQ(listener.backlog(), 16U);
  EXPECT_EQ(connection.vdev(), "red0");
  EXPECT_EQ(connection.transport(), "RC");
  EXPECT_EQ(connection.service(), "tcp");
  EXPECT_EQ(connection.service_id(), 0x1061d2fU);
  EXPECT_EQ(connection.local(), "::ffff:10.0.0.1");
  EXPECT_EQ(connection.local_port(), 7471U);
  EXPECT_EQ(connection.remote(), "fd00::2");
  EXPECT_EQ(connection.remote_port(), 40000U);
  EXPECT_EQ(connection.local_qpn(), 17U);
  EXPECT_EQ(connection.remote_qpn(), 18U);
  EXPECT_EQ(connection.age_ms(), 7'300'000U);
  expect_error(client_.list_connections("x"), ENOENT, "no vdevice is named x");
}

TEST_F(ClientTest, queue_pairs) {
  create("red0");
  create("blue0");
  EXPECT_EQ(client_.list_queue_pairs("").value().size(), 4U);
  const auto of_red = client_.list_queue_pairs("red0");
  ASSERT_TRUE(of_red);
  ASSERT_EQ(of_red->size(), 2U);
  EXPECT_EQ((*of_red)[0].type(), "UD");
  EXPECT_EQ((*of_red)[0].remote(), "");
  const v1::QueuePair& row = (*of_red)[1];
  EXPECT_EQ(row.vdev(), "red0");
  EXPECT_EQ(row.qpn(), 18U);
  EXPECT_EQ(row.pid(), 4711);
  EXPECT_EQ(row.state(), "RTS");
  EXPECT_EQ(row.transport(), "network");
  EXPECT_EQ(row.local(), "::ffff:10.0.0.1");
  EXPECT_EQ(row.remote(), "::ffff:10.0.0.2");
  EXPECT_EQ(row.remote_qpn(), 19U);
  EXPECT_EQ(row.round_trip_us(), 120U);
  EXPECT_EQ(row.window(), 256U);
  EXPECT_EQ(row.unanswered(), 3U);
  EXPECT_EQ(row.rate(), 1'000'000U);
  EXPECT_EQ(row.packet_seq_err(), 5U);
  EXPECT_EQ(row.implied_nak_seq_err(), 6U);
  EXPECT_EQ(row.local_ack_timeout_err(), 7U);
  EXPECT_EQ(row.rnr_nak_retry_err(), 8U);
  EXPECT_EQ(row.retransmitted(), 90U);
  expect_error(client_.list_queue_pairs("x"), ENOENT, "no vdevice is named x");
}

TEST_F(ClientTest, exports) {
  create("red0");
  create("blue0");
  EXPECT_EQ(client_.list_exports("").value().size(), 4U);
  const auto of_red = client_.list_exports("red0");
  ASSERT_TRUE(of_red);
  ASSERT_EQ(of_red->size(), 2U);
  const v1::Export& row = (*of_red)[0];
  EXPECT_EQ(row.vdev(), "red0");
  EXPECT_EQ(row.pid(), 4711);
  EXPECT_EQ(row.socket(), "/run/vm0.sock");
  EXPECT_TRUE(row.vmm_connected());
  EXPECT_TRUE(row.has_driver_version());
  EXPECT_EQ(row.driver_version(), 20U);
  EXPECT_EQ(row.doorbell_mode(), "trap");
  EXPECT_EQ(row.doorbells(), 1U);
  EXPECT_EQ(row.registers(), 2U);
  EXPECT_EQ(row.commands(), 3U);
  EXPECT_EQ(row.interrupts(), 4U);
  EXPECT_EQ(row.replaced(), 5U);
  EXPECT_EQ(row.attaches_refused(), 6U);
  EXPECT_EQ(row.commands_refused(), 7U);
  EXPECT_EQ(row.doorbells_refused(), 8U);
  EXPECT_EQ(row.requests_refused(), 9U);
  EXPECT_EQ(row.events_lost(), 10U);
  EXPECT_FALSE((*of_red)[1].has_driver_version());
  EXPECT_FALSE((*of_red)[1].vmm_connected());
  EXPECT_EQ((*of_red)[1].doorbell_mode(), "");
  expect_error(client_.list_exports("x"), ENOENT, "no vdevice is named x");
}

TEST_F(ClientTest, parents_counters_version) {
  create("red0");
  const auto parents = client_.list_parents();
  ASSERT_TRUE(parents);
  ASSERT_EQ(parents->size(), 1U);
  EXPECT_EQ((*parents)[0].name(), "soft");
  EXPECT_EQ((*parents)[0].kind(), "built in");
  EXPECT_EQ((*parents)[0].vdevices(), 1U);

  EXPECT_EQ(client_.counters("red0")->size(), 2U);
  EXPECT_GT(client_.counters("daemon")->size(), 1U);
  EXPECT_GT(client_.counters("")->size(), client_.counters("daemon")->size());
  expect_error(client_.counters("blue0"), ENOENT, "no vdevice is named blue0");

  const auto version = client_.version();
  ASSERT_TRUE(version);
  EXPECT_THAT(version->version(), testing::MatchesRegex("[0-9.]+"));
  EXPECT_EQ(version->pid(), ::getpid());
}

TEST_F(ClientTest, activity_says_what_moves_and_whether_the_rest_changed) {
  create("red0");
  const auto before = client_.list_activity();
  ASSERT_TRUE(before) << before.error().message();
  ASSERT_EQ(before->vdevs_size(), 1);
  const v1::Activity& row = before->vdevs(0);
  EXPECT_EQ(row.vdev_id(), 1U);
  EXPECT_EQ(row.sessions(), 2U);
  EXPECT_FALSE(row.has_direct());
  EXPECT_EQ(row.worker().requests(), 5U);
  EXPECT_EQ(row.worker().bytes(), 600U);
  EXPECT_EQ(row.refused(0).reason(), "quota:qp");
  EXPECT_EQ(row.refused(0).count(), 3U);
  EXPECT_EQ(row.usage(0).kind(), "mr");
  EXPECT_EQ(row.usage(0).used(), 4U);
  EXPECT_EQ(row.usage(0).limit(), 10U);
  EXPECT_EQ(before->last_event(), client_.list_events(0, 1).value().at(0).number());
  create("red1");
  EXPECT_NE(client_.list_activity()->vdevs_revision(), before->vdevs_revision());
}

TEST_F(ClientTest, an_error_arrives_unchanged) {
  create("red0");
  v1::CreateVdevRequest request;
  request.set_name("red0");
  request.set_netns("a");
  expect_error(client_.create_vdev(request), EEXIST, "vdevice red0 exists already");
  request.set_name("x");
  request.set_netns("missing");
  expect_error(client_.create_vdev(request), ENOENT, "netns missing: No such file");
  request.set_netns("a");
  request.set_netdev("missing");
  expect_error(client_.create_vdev(request), ENODEV, "netns a has no netdev missing");
  request.set_netdev("eth0");
  request.set_parent("mlx5_9");
  expect_error(client_.create_vdev(request), ENODEV, "no parent is named mlx5_9");
  expect_error(client_.delete_vdev("y"), ENOENT, "no vdevice is named y");

  // Any errno, and any sentence, even one that HTTP must escape.
  const std::string odd = "100 % wrong: \"x\"\n\t\xc3\xa9";
  for (const int code : {EPERM, EINVAL, ENOMEM, EADDRINUSE, ENOTUNIQ, EXDEV, 4095}) {
    backend_->fail_with(code, odd);
    expect_error(client_.get_vdev("red0"), code, odd);
    expect_error(client_.delete_vdev("red0"), code, odd);
    expect_error(client_.create_vdev(request), code, odd);
  }
}

TEST_F(ClientTest, watch_tells_what_is_and_what_changes) {
  create("red0");
  std::vector<std::string> seen;
  const auto ended = client_.watch_vdevs([&](const v1::WatchEvent& event) {
    seen.push_back(v1::WatchEvent::Type_Name(event.type()) + " " + event.vdev().name() + " " +
                   event.reason());
    switch (seen.size()) {
      case 1:
        create("blue0");
        return true;
      case 2: {
        v1::SetQuotaRequest request;
        request.set_name("blue0");
        EXPECT_TRUE(client_.set_quota(request));
        return true;
      }
      case 3:
        EXPECT_TRUE(client_.delete_vdev("red0"));
        return true;
      default:
        return false;
    }
  });
  EXPECT_TRUE(ended);
  EXPECT_EQ(seen,
            (std::vector<std::string>{"ADDED red0 exists", "ADDED blue0 created",
                                      "CHANGED blue0 quota changed", "REMOVED red0 deleted"}));
  EXPECT_TRUE(client_.list_vdevs()) << "the connection outlives the watch";
}

TEST_F(ClientTest, a_daemon_that_went_is_told) {
  EXPECT_TRUE(client_.list_vdevs());
  stop();
  expect_error(client_.list_vdevs(), ECONNRESET,
               "vrdmad closed the connection: it stopped, or does not accept this user");
}

TEST(ClientConnect, says_why_it_cannot) {
  const vrdmad::TempDir temp;
  const std::string socket = temp.path() + "/admin.sock";
  const auto nobody = Client::connect(temp.path());
  ASSERT_FALSE(nobody);
  EXPECT_EQ(nobody.error().code(), ECONNREFUSED);
  EXPECT_EQ(nobody.error().message(), "vrdmad is not running: nothing listens on " + socket);

  const auto too_long = Client::connect("/" + std::string(200, 'x'));
  ASSERT_FALSE(too_long);
  EXPECT_THAT(too_long.error().message(), HasSubstr("too long"));
}

TEST(ClientConnect, the_run_dir_is_told_by_the_environment) {
  ::unsetenv("VRDMA_RUN_DIR");
  EXPECT_EQ(default_run_dir(), "/run/vrdma");
  ::setenv("VRDMA_RUN_DIR", "/elsewhere", 1);
  EXPECT_EQ(default_run_dir(), "/elsewhere");
  ::unsetenv("VRDMA_RUN_DIR");
}

}  // namespace
}  // namespace vrdma::api
