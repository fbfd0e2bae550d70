// Rows of connections for the admin API.
#include "vrdmad/cm/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/vrdmad/cm/rig.h"

namespace vrdma::vrdmad {
namespace {

using testing::Contains;
using testing::Not;

// At least `least`: slow messages are retransmitted.
MATCHER_P3(Counts, name, label, least, "") {
  return arg.name == name && arg.label.second == label && arg.value >= least;
}

struct CmRows : testing::Test {
  CmRig rig;
  CmClient one{rig, 0}, two{rig, 1};

  std::vector<CounterRow> counters(size_t vdevice) {
    return cm_counter_rows("x", rig.devices[vdevice]->endpoint().counters(), false);
  }
};

TEST_F(CmRows, ShowBothEndsAndTheListener) {
  two.listener(1, 7471);
  one.caller(1, 7471, 5);
  rig.settle();
  const auto all = connection_rows(rig.cm.mux(), 0);
  ASSERT_EQ(all.size(), 3u);
  const ConnectionRow &client = all[0], &listener = all[1], &server = all[2];
  EXPECT_EQ(client.vdev.name, "va");
  EXPECT_EQ(client.vdev.id, 7u);
  EXPECT_EQ(client.tenant, "red");
  EXPECT_EQ(client.state, "REQ_SENT");
  EXPECT_EQ(client.transport, "RC");
  EXPECT_TRUE(client.active);
  EXPECT_EQ(client.service, "tcp");
  EXPECT_EQ(client.local, "::ffff:10.0.0.1");
  EXPECT_GE(client.local_port, 32768);
  EXPECT_EQ(client.remote, "::ffff:10.0.0.2");
  EXPECT_EQ(client.remote_port, 7471);
  EXPECT_EQ(client.local_qpn, 5u);
  EXPECT_EQ(listener.vdev.name, "vb");
  EXPECT_EQ(listener.state, "LISTEN");
  EXPECT_EQ(listener.local, "::ffff:10.0.0.2");
  EXPECT_EQ(listener.local_port, 7471);
  EXPECT_EQ(listener.waiting, 1u);
  EXPECT_EQ(listener.backlog, 16u);
  EXPECT_EQ(server.state, "REQ_RECEIVED");
  EXPECT_FALSE(server.active);
  EXPECT_EQ(server.local_port, 7471);
  EXPECT_EQ(server.remote_port, client.local_port);
  EXPECT_EQ(server.remote_qpn, 5u);
  EXPECT_EQ(server.remote_id, client.local_id);
  EXPECT_EQ(connection_rows(rig.cm.mux(), 8).size(), 2u);
  EXPECT_EQ(connection_rows(rig.cm.mux(), 9).size(), 0u);
}

TEST_F(CmRows, CountMessagesAndReasons) {
  one.caller(1, 7471, 5);
  for (int told = 0; told < 3;)  // the address, the route, and the rejection
    if (one.event()) ++told;
  EXPECT_THAT(counters(0), Contains(Counts("cm_sent", "req", 1u)));
  EXPECT_THAT(counters(0), Contains(Counts("cm_received", "rej", 1u)));
  EXPECT_THAT(counters(0), Contains(Counts("cm_rejects_received", "invalid_service_id", 1u)));
  EXPECT_THAT(counters(1), Contains(Counts("cm_received", "req", 1u)));
  EXPECT_THAT(counters(1), Contains(Counts("cm_rejects_sent", "invalid_service_id", 1u)));
}

TEST_F(CmRows, BeginAtZeroWhenItCanBeUsed) {
  EXPECT_THAT(counters(1), Not(Contains(Counts("cm_sent", "req", 0u)))) << "there was no message";
  const auto with_ids = cm_counter_rows("x", rig.devices[1]->endpoint().counters(), true);
  EXPECT_THAT(with_ids, Contains(Counts("cm_sent", "req", 0u)));
  EXPECT_THAT(with_ids, Contains(Counts("cm_rejects_sent", "consumer", 0u)));
  EXPECT_THAT(with_ids, Not(Contains(Counts("cm_sent", "lap", 0u))));
  EXPECT_THAT(with_ids, Not(Contains(Counts("cm_rejects_sent", "port_redirect", 0u))));
  one.caller(1, 7471, 5);
  for (int told = 0; told < 3;)
    if (one.event()) ++told;
  EXPECT_THAT(counters(1), Contains(Counts("cm_sent", "req", 0u))) << "there was another message";
}

}  // namespace
}  // namespace vrdma::vrdmad
