#include "cli/output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace vrdma::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

v1::Vdev red0() {
  v1::Vdev vdev;
  vdev.set_name("red0");
  vdev.set_parent("soft");
  vdev.set_tenant("red");
  vdev.set_fabric("shared");
  vdev.set_netns("pid:7");
  vdev.set_netns_cookie(4026532000);
  vdev.set_netdev("eth0");
  vdev.set_ifindex(2);
  vdev.set_node_guid("0211:22ff:fe33:4455");
  vdev.set_port_state("DOWN");
  vdev.set_active_mtu(1024);
  vdev.set_socket("/run/x.sock");
  vdev.set_sessions(3);
  auto& gid = *vdev.add_gids();
  gid.set_gid("fe80::1");
  gid.set_type("RoCE v2");
  auto& qp = *vdev.add_quota();
  qp.set_kind("qp");
  qp.set_used(2);
  qp.set_limit(64);
  auto& bytes = *vdev.add_quota();
  bytes.set_kind("mr_bytes");
  bytes.set_limit(~uint64_t{0});
  vdev.add_allowed("raw-packet");
  vdev.set_limited(true);
  vdev.set_gid_layout("dense");
  vdev.set_reach("network");
  vdev.set_id(41);
  vdev.mutable_owner()->set_pid(4711);
  vdev.mutable_owner()->set_start_time(99);
  vdev.mutable_owner()->set_boot_id("b");
  vdev.mutable_owner()->set_ended(true);
  auto& container = *vdev.add_containers();
  container.set_id("4d2f");
  container.set_pid(4712);
  (*vdev.mutable_labels())["pod"] = "red-0";
  (*vdev.mutable_labels())["app"] = "red";
  return vdev;
}

// The output of `print` in this format.
template <class Print>
std::string printed(Format format, Print print) {
  std::ostringstream out;
  Output output(out, format);
  print(output);
  return out.str();
}

TEST(Output, list) {
  v1::Vdev of_none = red0(), of_pod = red0();
  of_none.clear_containers();
  of_none.clear_owner();
  of_none.set_netns("red");
  EXPECT_EQ(printed(Format::kTable, [&](Output& o) { o.list({of_none}, {of_none}); }),
            "NAME  STATE  NETNS  NETDEV  PARENT  TENANT  FABRIC   MTU  GIDS  SESSIONS\n"
            "red0  DOWN   red    eth0    soft    red     shared  1024     1         3\n");
  (*of_pod.mutable_labels())["pod_namespace"] = "shop";
  (*of_pod.mutable_labels())["pod_name"] = "web-0";
  const std::vector<v1::Vdev> all{of_none, red0(), of_pod};
  EXPECT_EQ(
      printed(Format::kTable, [&](Output& o) { o.list(all, all); }),
      "NAME  STATE  NETNS  NETDEV  PARENT  TENANT  FABRIC   MTU  GIDS  SESSIONS  WHO\n"
      "red0  DOWN   red    eth0    soft    red     shared  1024     1         3  -\n"
      "red0  DOWN   pid:7  eth0    soft    red     shared  1024     1         3  4d2f\n"
      "red0  DOWN   pid:7  eth0    soft    red     shared  1024     1         3  shop/web-0\n");
  EXPECT_EQ(printed(Format::kJson, [](Output& o) { o.list({}, {}); }), "[]\n");
  // Every column, in the order that is asked for.
  std::ostringstream out;
  Output(out, Format::kTable,
         {.columns = {"labels", "owner", "container", "traffic", "allowed", "reference", "guid"}})
      .list({red0()}, all);
  EXPECT_EQ(out.str(),
            "LABELS             OWNER  CONTAINER  TRAFFIC   ALLOWED     REFERENCE  GUID\n"
            "app=red,pod=red-0   4711  4d2f       mediated  raw-packet  id:41      "
            "0211:22ff:fe33:4455\n");
  EXPECT_EQ(printed(Format::kTable,
                    [&](Output& o) {
                      o.names({red0(), of_none}, all);
                    }),
            "id:41\nred/red0\n");
  EXPECT_EQ(printed(Format::kJson, [&](Output& o) { o.names({red0()}, {red0()}); }),
            "[\n  \"red0\"\n]\n");
}

TEST(Output, classes) {
  v1::Class small, wrong;
  small.set_name("small");
  small.set_parent("soft");
  small.set_parent_state("ACTIVE");
  small.set_devices(8);
  small.set_given(2);
  small.set_free(UINT32_MAX);
  small.add_quota()->set_kind("qp");
  small.mutable_quota(0)->set_limit(64);
  wrong.set_name("wrong");
  wrong.set_error("c.conf: class 'wrong': most: 'x' is not a number");
  EXPECT_EQ(printed(Format::kTable,
                    [&](Output& o) {
                      o.classes({small, wrong});
                    }),
            "NAME   PARENT  DEVICES  GIVEN  FREE  QUOTA\n"
            "small  soft          8      2   any  qp=64\n"
            "wrong: c.conf: class 'wrong': most: 'x' is not a number\n");
  EXPECT_THAT(printed(Format::kJson, [&](Output& o) { o.classes({small}); }),
              AllOf(HasSubstr("\"free\": null"), HasSubstr("\"numa_node\": null"),
                    HasSubstr("\"devices\": 8"), HasSubstr("\"qp\": 64")));
}

TEST(Output, json_has_every_field) {
  EXPECT_EQ(printed(Format::kJson, [](Output& o) { o.created(red0()); }),
            R"({
  "name": "red0",
  "parent": "soft",
  "tenant": "red",
  "fabric": "shared",
  "netns": "pid:7",
  "netns_cookie": 4026532000,
  "netdev": "eth0",
  "ifindex": 2,
  "node_guid": "0211:22ff:fe33:4455",
  "port_state": "DOWN",
  "active_mtu": 1024,
  "socket": "/run/x.sock",
  "sessions": 3,
  "parked": 0,
  "gids": [
    {
      "index": 0,
      "gid": "fe80::1",
      "type": "RoCE v2"
    }
  ],
  "quota": [
    {
      "kind": "qp",
      "used": 2,
      "limit": 64
    },
    {
      "kind": "mr_bytes",
      "used": 0,
      "limit": 18446744073709551615
    }
  ],
  "allowed": [
    "raw-packet"
  ],
  "limited": true,
  "no_direct": false,
  "addresses": [],
  "addresses_ignored": 0,
  "reached": [],
  "id": 41,
  "owner": {
    "pid": 4711,
    "start_time": 99,
    "boot_id": "b",
    "ended": true
  },
  "end_with_owner": false,
  "containers": [
    {
      "id": "4d2f",
      "pid": 4712
    }
  ],
  "labels": {
    "app": "red",
    "pod": "red-0"
  },
  "lost": "",
  "unserved": "",
  "gid_layout": "dense",
  "reach": "network",
  "peers": [],
  "addresses_given": false
}
)");
}

TEST(Output, created_says_nothing_to_people) {
  EXPECT_EQ(printed(Format::kTable, [](Output& o) { o.created(red0()); }), "");
}

TEST(Output, show) {
  EXPECT_EQ(printed(Format::kTable, [](Output& o) { o.show({red0()}, {}); }),
            "red0\n"
            "    parent         soft\n"
            "    tenant         red\n"
            "    fabric         shared\n"
            "    reach          network\n"
            "    id             41\n"
            "    netns          pid:7 (cookie 4026532000)\n"
            "    netdev         eth0 (index 2)\n"
            "    node guid      0211:22ff:fe33:4455\n"
            "    port           DOWN, mtu 1024\n"
            "    socket         /run/x.sock\n"
            "    sessions       3\n"
            "    traffic        mediated, because it is limited\n"
            "    queue pairs    none\n"
            "    allowed        raw-packet\n"
            "    owner          process 4711, which has ended\n"
            "    container      4d2f (process 4712)\n"
            "    label          app=red\n"
            "    label          pod=red-0\n"
            "    gid 0          fe80::1 (RoCE v2)\n"
            "    qp             2 of 64\n"
            "    mr_bytes       0 of max\n");
  v1::Vdev reaching = red0();
  for (const char* reason : {"traced", "vfork"}) {
    auto& row = *reaching.add_reached();
    row.set_reason(reason);
    row.set_regions(4);
  }
  EXPECT_THAT(printed(Format::kTable, [&](Output& o) { o.show({reaching}, {}); }),
              HasSubstr("reached        regions not in place, by reason: traced 4, vfork 4\n"));
  v1::Vdev guaranteed;
  guaranteed.add_quota()->set_kind("bandwidth_min");
  EXPECT_THAT(printed(Format::kTable, [&](Output& o) { o.show({guaranteed}, {}); }),
              HasSubstr("\n    bandwidth_min  0 of 0\n"));
}

v1::QueuePair queue_pair(uint32_t qpn, const char* transport) {
  v1::QueuePair row;
  row.set_vdev_id(41);
  row.set_qpn(qpn);
  row.set_transport(transport);
  return row;
}

TEST(Output, sum_of_queue_pairs) {
  std::vector rows{queue_pair(1, "network"), queue_pair(2, "direct"), queue_pair(3, "network"),
                   queue_pair(4, ""), queue_pair(5, "direct")};
  rows[4].set_vdev_id(42);
  const auto shown = [&] {
    return printed(Format::kTable, [&](Output& o) { o.show({red0()}, rows); });
  };
  EXPECT_THAT(shown(), HasSubstr("\n    queue pairs    1 direct, 2 network, 1 not connected\n"));
  rows[0].set_retransmitted(7);
  rows[2].set_local_ack_timeout_err(1);
  rows[2].set_packet_seq_err(2);
  EXPECT_THAT(shown(), HasSubstr("1 not connected (resent 7, losses 3)\n"));
  const auto unknown = [](Output& o) { o.show({red0()}, base::fail(ETIMEDOUT, "it is busy")); };
  EXPECT_THAT(printed(Format::kTable, unknown),
              HasSubstr("\n    queue pairs    not known: it is busy\n"));
}

v1::Export export_of(uint64_t vdev) {
  v1::Export one;
  one.set_vdev_id(vdev);
  one.set_pid(4711);
  one.set_socket("/run/vm0.sock");
  one.set_vmm_connected(true);
  one.set_driver_version(20);
  one.set_doorbell_mode("trap");
  one.set_doorbells(1);
  one.set_registers(2);
  one.set_commands(3);
  one.set_interrupts(4);
  one.set_replaced(5);
  one.set_attaches_refused(6);
  one.set_commands_refused(7);
  one.set_doorbells_refused(8);
  one.set_requests_refused(9);
  one.set_events_lost(10);
  return one;
}

TEST(Output, exports) {
  const auto shown = [](Format format, const base::Result<std::vector<v1::Export>>& exports) {
    return printed(format, [&](Output& o) { o.show({red0()}, {}, exports); });
  };
  EXPECT_THAT(shown(Format::kTable, std::vector{export_of(42), export_of(41)}),
              HasSubstr("    queue pairs    none\n"
                        "    exported       by process 4711, which says:\n"
                        "      socket       /run/vm0.sock\n"
                        "      machine      connected, driver version 20\n"
                        "      doorbells    trap\n"
                        "      counts       doorbells 1, registers 2, commands 3, interrupts 4\n"
                        "      refused      attaches 6, commands 7, doorbells 8, requests 9\n"
                        "      lost         events 10\n"
                        "      replaced     5 times\n"
                        "    allowed "));
  v1::Export alone;
  alone.set_vdev_id(41);
  EXPECT_THAT(shown(Format::kTable, std::vector{alone}),
              AllOf(HasSubstr("\n      machine      none\n"), HasSubstr("doorbells    unknown\n")));
  EXPECT_THAT(shown(Format::kTable, std::vector{export_of(42)}), Not(HasSubstr("exported")));
  EXPECT_THAT(shown(Format::kTable, base::fail(ETIMEDOUT, "it is busy")),
              HasSubstr("\n    exported       not known: it is busy\n"));
  EXPECT_THAT(shown(Format::kJson, std::vector{export_of(42), export_of(41)}),
              HasSubstr(R"(  "addresses_given": false,
    "exports": [
      {
        "pid": 4711,
        "socket": "/run/vm0.sock",
        "vmm_connected": true,
        "driver_version": 20,
        "doorbell_mode": "trap",
        "doorbells": 1,
        "registers": 2,
        "commands": 3,
        "interrupts": 4,
        "replaced": 5,
        "attaches_refused": 6,
        "commands_refused": 7,
        "doorbells_refused": 8,
        "requests_refused": 9,
        "events_lost": 10
      }
    ]
)"));
  EXPECT_THAT(shown(Format::kJson, std::vector{alone}), HasSubstr(R"("driver_version": null)"));
  EXPECT_THAT(shown(Format::kJson, std::vector{export_of(42)}), HasSubstr(R"("exports": [])"));
  EXPECT_THAT(shown(Format::kJson, base::fail(ETIMEDOUT, "it is busy")),
              HasSubstr(R"("exports": null)"));
}

TEST(Output, transport_of_connections) {
  v1::Connection row;
  row.set_vdev("red0");
  row.set_vdev_id(41);
  row.set_transport("RC");
  row.set_state("ESTABLISHED");
  row.set_local("::ffff:10.0.0.1");
  row.set_remote("::ffff:10.0.0.2");
  row.set_local_qpn(3);
  v1::Connection other = row;
  other.set_local_qpn(4);
  EXPECT_THAT(printed(Format::kTable,
                      [&](Output& o) {
                        o.connections({row, other}, std::vector{queue_pair(3, "network")});
                      }),
              AllOf(HasSubstr("  3  network    "), HasSubstr("  4  -          ")));
  EXPECT_THAT(printed(Format::kTable,
                      [&](Output& o) { o.connections({row}, base::fail(EBUSY, "no answer")); }),
              AllOf(HasSubstr("  3  -          "),
                    testing::EndsWith("\nTRANSPORT is not known: no answer\n")));
}

TEST(Output, claims) {
  v1::Claim claim;
  claim.set_uid("a3f0");
  claim.set_namespace_("bank");
  claim.set_name("ledger");
  auto& data = *claim.add_shares();
  data.set_id("data");
  data.set_class_("small");
  data.set_vdevices(2);
  for (const auto& [kind, limit] : {std::pair{"qp", uint64_t{64}}, {"mr", ~uint64_t{0}}}) {
    auto& row = *data.add_quota();
    row.set_kind(kind);
    row.set_limit(limit);
  }
  auto& control = *claim.add_shares();
  control.set_id("control");
  control.set_class_("default");
  (*claim.mutable_labels())["team"] = "red";
  EXPECT_EQ(printed(Format::kTable, [&](Output& o) { o.claims({claim}); }),
            "CLAIM  NAMESPACE/NAME  SHARE    CLASS    QUOTA          VDEVICES\n"
            "a3f0   bank/ledger     data     small    qp=64, mr=max         2\n"
            "a3f0   bank/ledger     control  default  -                     0\n");
  EXPECT_EQ(printed(Format::kJson, [&](Output& o) { o.claims({claim}); }), R"([
  {
    "uid": "a3f0",
    "namespace": "bank",
    "name": "ledger",
    "shares": [
      {
        "id": "data",
        "class": "small",
        "quota": {
          "qp": 64,
          "mr": 18446744073709551615
        },
        "vdevices": 2
      },
      {
        "id": "control",
        "class": "default",
        "quota": {},
        "vdevices": 0
      }
    ],
    "labels": {
      "team": "red"
    }
  }
]
)");
}

TEST(Output, fabrics) {
  v1::Fabric shared;
  shared.set_name("shared");
  shared.set_reach("network");
  shared.set_vdevices(2);
  shared.set_gids(14);
  for (const char* prefix : {"10.0.0.0/8", "fd00::/8"}) shared.add_peers(prefix);
  EXPECT_EQ(printed(Format::kTable,
                    [&](Output& o) {
                      o.fabrics({shared, v1::Fabric()});
                    }),
            "NAME    REACH    VDEVICES  GIDS  PEERS\n"
            "shared  network         2    14  10.0.0.0/8, fd00::/8\n"
            "-       -               0     0  all\n");
  const std::string json = printed(Format::kJson, [&](Output& o) { o.fabrics({shared}); });
  EXPECT_EQ(json, R"([
  {
    "name": "shared",
    "reach": "network",
    "vdevices": 2,
    "gids": 14,
    "peers": [
      "10.0.0.0/8",
      "fd00::/8"
    ]
  }
]
)");
  EXPECT_EQ(printed(Format::kJson, [&](Output& o) { o.changed(shared); }), json);
  EXPECT_EQ(printed(Format::kTable, [&](Output& o) { o.changed(shared); }), "");
}

TEST(Output, quota_and_gids) {
  EXPECT_EQ(printed(Format::kTable, [](Output& o) { o.quota({red0()}); }),
            "VDEVICE  KIND      USED  LIMIT\n"
            "red0     qp           2     64\n"
            "red0     mr_bytes     0    max\n");
  EXPECT_EQ(printed(Format::kTable, [](Output& o) { o.gids({red0()}); }),
            "VDEVICE  INDEX  GID      TYPE\n"
            "red0         0  fe80::1  RoCE v2\n");
}

TEST(Output, an_event_is_one_line) {
  v1::WatchEvent event;
  event.set_type(v1::WatchEvent::REMOVED);
  event.set_reason("netdev deleted");
  *event.mutable_vdev() = red0();
  const std::string line = printed(Format::kTable, [&](Output& o) { o.event(event); });
  EXPECT_EQ(line.substr(8),
            "  removed  red0          DOWN    pid:7 eth0, 1 gids: netdev deleted\n");
  const std::string json = printed(Format::kJson, [&](Output& o) { o.event(event); });
  EXPECT_EQ(json.find('\n'), json.size() - 1);
  EXPECT_EQ(json.rfind(R"({"type":"removed","reason":"netdev deleted","vdev":{"name":"red0",)", 0),
            0U);
}

TEST(Output, what_is_no_text_does_not_break_json) {
  v1::Parent parent;
  parent.mutable_name()->assign("a\"b\n\x01");
  EXPECT_NE(printed(Format::kJson, [&](Output& o) { o.parents({parent}); }).find(R"(a\"b\n\u0001)"),
            std::string::npos);
}

}  // namespace
}  // namespace vrdma::cli
