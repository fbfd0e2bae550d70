// The metrics: their families and the page about them, what is printed, and for whom.
#include "vrdmad/admin/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "tests/unit/core/base/run_until.h"
#include "vrdmad/admin/metric_families.h"
#include "vrdmad/admin/remote_metrics.h"
#include "vrdmad/control/counters.h"

namespace vrdma::vrdmad {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

struct Described {
  std::string type, labels;
};
// The tables of docs/metrics.md: | `name`, `name` | type | labels | meaning |
std::map<std::string, Described> page() {
  std::map<std::string, Described> all;
  std::ifstream file(VRDMA_METRICS_PAGE);
  const std::regex row(R"(\| (`[^|]*`) \| (\w+) \| ([a-z, ]*?) *\| .*)"), name("`(vrdma_\\w+)`");
  for (std::string line; std::getline(file, line);) {
    std::smatch cells;
    if (!std::regex_match(line, cells, row)) continue;
    const std::string names = cells[1];
    for (std::sregex_iterator each(names.begin(), names.end(), name), end; each != end; ++each)
      EXPECT_TRUE(all.insert({(*each)[1], {cells[2], cells[3]}}).second) << (*each)[1];
  }
  return all;
}

TEST(MetricFamilies, are_those_of_the_page) {
  auto described = page();
  for (const MetricFamily& family : metric_families()) {
    const std::string name = metric_name(family, false);
    const auto its = described.find(name);
    ASSERT_NE(its, described.end()) << "docs/metrics.md lacks " << name;
    EXPECT_EQ(its->second.type, family.gauge ? "gauge" : "counter") << name;
    if (std::string(family.row) != "vdevice_info") {
      EXPECT_EQ(its->second.labels, family.label) << name;
    }
    described.erase(its);
  }
  for (const auto& [name, its] : described) ADD_FAILURE() << "there is no " << name;
}

TEST(MetricFamilies, have_texts_and_names_of_base_units) {
  std::set<std::string> names;
  for (const MetricFamily& family : metric_families()) {
    EXPECT_TRUE(names.insert(family.name).second) << family.name;
    EXPECT_GT(std::string(family.help).size(), 15u) << family.name;
    EXPECT_THAT(family.name, Not(testing::ContainsRegex("micro|milli|nano|percent")));
  }
}

// What vdevice_rows() says of a vdevice that has done nothing.
std::string text_of(const VdeviceAbilities& may, const std::vector<provisioning::Setting>& limits,
                    const qp1mux::Counters& cm = {}, const VdeviceUse& use = {}) {
  provisioning::Ledger ledger;
  EXPECT_TRUE(ledger.set_limits(limits));
  const auto rows = vdevice_rows({{7, "red0", "n"}, "r"}, use, may, ledger.rows(), 0, cm);
  for (const auto& row : rows) {
    const MetricFamily* const family = family_of(row);
    EXPECT_NE(family, nullptr) << row.name;
    if (family != nullptr) {
      EXPECT_EQ(row.label.first, family->label) << row.name;
    }
  }
  TenantTotals totals;
  for (const auto& row : rows) totals.add(row);
  return metrics_text(rows) + metrics_text(totals.rows());
}
unsigned series_of(const std::string& text) {
  unsigned lines = 0;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    if (line.find("{vdevice=") != std::string::npos) ++lines;
  return lines;
}

TEST(Metrics, have_no_series_that_a_vdevice_cannot_move) {
  const std::string little = text_of({.direct = false}, {});
  for (const char* absent :
       {"transport=\"direct\"", "transport=\"packet\"", "vrdma_network_", "vrdma_tenant_network_",
        "vrdma_paced_", "mode=\"direct\"", "kind=\"bandwidth\"", "kind=\"bandwidth_min\"",
        "kind=\"cpu\"", "kind=\"msg_rate\"", "vrdma_cm_sent", "vrdma_cm_rejects"})
    EXPECT_THAT(little, Not(HasSubstr(absent)));
  const std::string much =
      text_of({.direct = true, .paced = true, .packets = true, .network = true},
              {{"bandwidth", 1000}, {"bandwidth_min", 10}, {"cpu", 50}, {"msg_rate", 10}});
  const std::string who = "{vdevice=\"red0\",netns=\"n\",id=\"7\",tenant=\"r\"";
  for (const std::string& present :
       {"vrdma_work_bytes_total" + who + ",transport=\"direct\"} 0\n",
        "vrdma_work_bytes_total" + who + ",transport=\"packet\"} 0\n",
        "vrdma_network_events_total" + who + ",event=\"retransmitted\"} 0\n",
        "vrdma_paced_bytes_total" + who + "} 0\n", "vrdma_links" + who + ",mode=\"direct\"} 0\n",
        "vrdma_quota_limit" + who + ",kind=\"bandwidth\"} 1000\n",
        "vrdma_quota_refused_total" + who + ",kind=\"cpu\"} 0\n",
        "vrdma_quota_used" + who + ",kind=\"qp\"} 0\n",
        std::string("vrdma_tenant_network_events_total{tenant=\"r\",event=\"probes\"} 0\n")})
    EXPECT_THAT(much, HasSubstr(present));
  EXPECT_LT(series_of(little), 125u);
  EXPECT_GT(series_of(much), series_of(little) + 40);
}

TEST(Metrics, keep_what_was_counted_before_a_change) {
  VdeviceUse use;
  use.device.traffic.direct.bytes = 5;
  use.paced_bytes = 6;
  const std::string text = text_of({.direct = false}, {}, {}, use);
  EXPECT_THAT(text, HasSubstr("transport=\"direct\"} 5\n"));
  EXPECT_THAT(text, HasSubstr("vrdma_paced_bytes_total{vdevice=\"red0\",netns=\"n\",id=\"7\","
                              "tenant=\"r\"} 6\n"));
  EXPECT_THAT(text, Not(HasSubstr("vrdma_paced_messages_total{")));
}

TEST(Metrics, have_base_units) {
  const std::string text =
      metrics_text({{"red0", "cpu_microseconds", 1'500'000, {}, false, "r", 7, "n"},
                    {"daemon", "worker_longest_pass", 2500, {"worker", "0"}, true}});
  EXPECT_THAT(text, HasSubstr("vrdma_cpu_seconds_total{vdevice=\"red0\",netns=\"n\",id=\"7\","
                              "tenant=\"r\"} 1.5\n"));
  EXPECT_THAT(text, HasSubstr("vrdma_daemon_worker_longest_pass_seconds{worker=\"0\"} 0.0025"));
}

TEST(Metrics, go_to_other_hosts_only_with_tls_and_a_proof) {
  const auto error_of = [](const MetricsPlace& place) {
    const auto valid = check_metrics(place);
    return valid ? "" : valid.error().message();
  };
  for (const char* local : {"", "unix:/run/m", "127.0.0.1:9464", "[::1]:9464"})
    EXPECT_EQ(error_of({local, {}}), "") << local;
  for (const char* remote : {"0.0.0.0:9464", "[::]:9464", "10.0.0.1:9464", "127.0.0.2:9464"}) {
    EXPECT_THAT(error_of({remote, {}}), StartsWith("metrics: other hosts may reach ")) << remote;
    EXPECT_THAT(error_of({remote, {"c", "k", "", ""}}), HasSubstr("every host could read them"));
    EXPECT_THAT(error_of({remote, {"c", "", "", "t"}}), HasSubstr("both --metrics-cert"));
    EXPECT_THAT(error_of({remote, {"", "k", "a", ""}}), HasSubstr("both --metrics-cert"));
    EXPECT_THAT(error_of({remote, {"", "", "", "t"}}), HasSubstr("both --metrics-cert"));
    EXPECT_EQ(error_of({remote, {"c", "k", "", "t"}}), "");
    EXPECT_EQ(error_of({remote, {"c", "k", "a", ""}}), "");
  }
  EXPECT_THAT(error_of({"unix:/run/m", {"c", "k", "", "t"}}), HasSubstr("leave out the options"));
  EXPECT_THAT(error_of({"", {"", "", "", "t"}}), HasSubstr("need --metrics ADDRESS:PORT"));
  EXPECT_THAT(error_of({"everywhere", {"c", "k", "", "t"}}),
              HasSubstr("'everywhere' is not unix:PATH, ADDRESS:PORT"));
}

struct ScrapesTest : testing::Test {
  std::unique_ptr<base::EventLoop> loop = base::EventLoop::create().value();
  unsigned gathered = 0;
  std::function<void(std::vector<CounterRow>)> give;
  Scrapes scrapes{*loop, [this](auto then) {
                    ++gathered;
                    give = std::move(then);
                  }};
};

TEST_F(ScrapesTest, give_one_text_to_all_that_wait) {
  std::vector<Scrapes::Text> texts;
  for (int i = 0; i < 3; ++i) scrapes.ask([&](auto text) { texts.push_back(std::move(text)); });
  EXPECT_EQ(gathered, 1u);
  give({{"daemon", "vdevices", 5, {}, true}});
  ASSERT_EQ(texts.size(), 3u);
  EXPECT_THAT(*texts[0], HasSubstr("\nvrdma_vdevices 5\n"));
  EXPECT_EQ(texts[0], texts[2]);
  scrapes.ask([&](auto text) { texts.push_back(std::move(text)); });
  EXPECT_EQ(gathered, 1u) << "it rests first";
  EXPECT_TRUE(test::run_until(*loop, [&] { return gathered == 2; }));
  give({});
  EXPECT_EQ(texts.size(), 4u);
}

struct RemoteMetricsTest : ScrapesTest {
  RemoteMetricsTest() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    process = base::Fd(ends[0]);
    remote = RemoteMetrics::attach(*loop, base::Fd(ends[1]), scrapes, [this] { ++ended; }).value();
  }
  // All that has come.
  std::string received() const {
    std::string text(100'000, 0);
    const ssize_t got = ::recv(process.get(), text.data(), text.size(), MSG_DONTWAIT);
    text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    return text;
  }
  base::Fd process;
  unsigned ended = 0;
  std::unique_ptr<RemoteMetrics> remote;
};

TEST_F(RemoteMetricsTest, answer_one_question_after_the_other) {
  const std::string many(1000, '?');
  ASSERT_EQ(::send(process.get(), many.data(), many.size(), 0), 1000);
  for (unsigned question = 1; question <= 3; ++question) {
    ASSERT_TRUE(test::run_until(*loop, [&] { return gathered == question; }));
    EXPECT_EQ(received(), "");
    give({{"daemon", "vdevices", question, {}, true}});
    std::string answer;
    EXPECT_TRUE(test::run_until(*loop, [&] {
      answer += received();
      return answer.find("\nvrdma_vdevices " + std::to_string(question)) != std::string::npos;
    }));
  }
  EXPECT_EQ(ended, 0u);
}

TEST_F(RemoteMetricsTest, are_gone_when_their_process_ends) {
  ASSERT_EQ(::send(process.get(), "?", 1, 0), 1);
  ASSERT_TRUE(test::run_until(*loop, [&] { return gathered == 1; }));
  process.reset();
  EXPECT_TRUE(test::run_until(*loop, [&] { return ended == 1; }));
  give({{"daemon", "vdevices", 5, {}, true}});  // for nobody
  EXPECT_EQ(ended, 1u);
}

}  // namespace
}  // namespace vrdma::vrdmad
