#include "cli/top.h"

#include <gtest/gtest.h>

namespace vrdma::cli {
namespace {

v1::Counter counter(const std::string& scope, const std::string& name, uint64_t value) {
  v1::Counter made;
  made.set_scope(scope);
  made.set_name(name);
  made.set_value(value);
  made.set_tenant("red");
  if (scope.size() == 1) made.set_vdev_id(static_cast<uint64_t>(scope[0]));
  return made;
}

TEST(Top, rates_by_who_executes_the_busiest_first) {
  const std::vector<v1::Counter> before{counter("a", "work_bytes_direct", 1000),
                                        counter("b", "work_bytes_connected", 0),
                                        counter("b", "requests_refused", 5)};
  const std::vector<v1::Counter> now{counter("a", "work_bytes_direct", 3000),
                                     counter("a", "qps_rts", 2),
                                     counter("a", "qps_init", 1),
                                     counter("a", "sessions", 4),
                                     counter("b", "work_bytes_connected", 500),
                                     counter("b", "work_bytes_datagram", 8500),
                                     counter("b", "requests_refused", 7),
                                     counter("b", "quota_refused_qp", 2),
                                     counter("daemon", "vdevices", 2),
                                     counter("tenant/red", "work_bytes_direct", 9)};
  const auto rows = top_rows(before, now, 2);
  ASSERT_EQ(rows.size(), 2U) << "the daemon and tenants get no row";
  EXPECT_EQ(rows[0].name, "b");
  EXPECT_EQ(rows[0].worker.bytes, 4500);
  EXPECT_EQ(rows[0].refused, 2);
  EXPECT_EQ(rows[1].name, "a");
  EXPECT_EQ(rows[1].tenant, "red");
  EXPECT_EQ(rows[1].direct.bytes, 1000);
  EXPECT_EQ(rows[1].qps, 3U);
  EXPECT_EQ(rows[1].sessions, 4U);
}

TEST(Top, the_same_vdevice_of_another_daemon_begins_at_nothing) {
  const auto rows = top_rows({counter("a", "work_requests_direct", 1000)},
                             {counter("a", "work_requests_direct", 10)}, 1);
  EXPECT_EQ(rows[0].direct.requests, 10);
}

TEST(Top, vdevices_of_one_name_are_apart) {
  auto red = counter("a", "work_requests_direct", 1000), blue = red, later = red;
  red.set_netns("red");
  blue.set_vdev_id(7);
  blue.set_netns("blue");
  later.set_vdev_id(8);
  later.set_value(1002);
  auto more = red;
  more.set_value(1005);
  const auto rows = top_rows({red, blue}, {more, blue, later}, 1);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].netns, "blue");
  EXPECT_EQ(rows[0].direct.requests, 0);
  EXPECT_EQ(rows[1].direct.requests, 1002) << "it was created between the readings";
  EXPECT_EQ(rows[2].netns, "red");
  EXPECT_EQ(rows[2].direct.requests, 5);
}

TEST(Top, numbers_are_short) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(999), "999");
  EXPECT_EQ(short_number(1000), "1.0k");
  EXPECT_EQ(short_number(9949), "9.9k");
  EXPECT_EQ(short_number(123'456), "123k");
  EXPECT_EQ(short_number(2.5e9), "2.5G");
}

}  // namespace
}  // namespace vrdma::cli
