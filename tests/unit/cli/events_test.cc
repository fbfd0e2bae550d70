#include "cli/events.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

namespace vrdma::cli {
namespace {

class Events : public testing::Test {
 protected:
  Events() {
    ::setenv("TZ", "UTC", 1);
    ::tzset();
  }
  static constexpr int64_t kNow = 1'800'000'000'000;
};

TEST_F(Events, a_time_is_a_duration_or_a_date) {
  EXPECT_EQ(time_of("90s", kNow), kNow - 90'000);
  EXPECT_EQ(time_of("10m", kNow), kNow - 600'000);
  EXPECT_EQ(time_of("2h", kNow), kNow - 7'200'000);
  EXPECT_EQ(time_of("1d", kNow), kNow - 86'400'000);
  EXPECT_EQ(time_of("99999999d", kNow), 0);
  EXPECT_EQ(time_of("2026-11-29", kNow), 1'795'910'400'000);
  EXPECT_EQ(time_of("2026-11-29 10:05", kNow), 1'795'946'700'000);
  EXPECT_EQ(time_of("2026-11-29T10:05:30", kNow), 1'795'946'730'000);
  for (const char* wrong : {"", "10", "m", "-5m", "1.5h", "10 m", "10mm", "yesterday", "2026-13-01",
                            "2026-11-29 10", "1000000000d", "99999999999999999999s"})
    EXPECT_FALSE(time_of(wrong, kNow)) << wrong;
}

TEST_F(Events, a_line_says_who_was_refused_what) {
  v1::Event event;
  event.set_type("quota");
  event.set_last_ms(1'795'946'730'500);
  event.set_first_ms(1'795'946'700'000);
  event.set_count(3);
  event.set_vdev("a0");
  event.set_netns("red");
  event.set_tenant("shop");
  event.set_who("web/web-0");
  event.set_pid(42);
  event.set_program("ib_send_bw");
  event.set_reason("too many");
  EXPECT_EQ(text_of(event),
            "2026-11-29 10:05:30 quota red/a0 tenant shop of web/web-0 ib_send_bw[42]: too many, 3 "
            "times since 2026-11-29 10:05:00");
  EXPECT_EQ(json_of(event),
            R"({"number":0,"type":"quota","first_ms":1795946700000,"last_ms":1795946730500,)"
            R"("count":3,"vdev":"a0","vdev_id":0,"netns":"red","tenant":"shop","who":"web/web-0",)"
            R"("pid":42,"program":"ib_send_bw","reason":"too many","share":""})");
  v1::Event worker;
  worker.set_type("worker");
  worker.set_tenant("shop");
  worker.set_count(1);
  worker.set_reason("it ended");
  EXPECT_EQ(text_of(worker), "1970-01-01 00:00:00 worker tenant shop: it ended");
}

}  // namespace
}  // namespace vrdma::cli
