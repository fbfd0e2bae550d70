#include "cli/kubernetes/node/health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/kubernetes/report.h"

namespace vrdma::cli::kubernetes {
namespace {

using testing::HasSubstr;
using testing::Not;

ClassNews good_news() {
  ClassNews news;
  news.last.set_name("small");
  news.last.set_parent("soft");
  news.last.set_parent_state("ACTIVE");
  return news;
}

std::string reason_of(const ClassNews& news, const std::string& cdi = "") {
  const auto unhealthy = judge(news, cdi);
  return unhealthy ? unhealthy->reason + ": " + unhealthy->sentence : "healthy";
}

TEST(PluginHealth, has_a_reason) {
  auto news = good_news();
  EXPECT_EQ(reason_of(news), "healthy");
  EXPECT_EQ(reason_of(news, "no file"), "cdi: no file");
  news.last.set_parent_state("DOWN");
  EXPECT_EQ(reason_of(news, "no file"), "parent: parent 'soft' of class 'small' is DOWN");
  news.last.set_parent_state("");
  EXPECT_EQ(reason_of(news), "parent: parent 'soft' of class 'small' is in no known state");
  news.last.set_error("class 'small': no parent");
  EXPECT_EQ(reason_of(news), "class: class 'small': no parent");
  news.in_file = false;
  EXPECT_EQ(reason_of(news), "gone: class 'small' is no longer in the file of classes");
  news.file_error = "classes.conf: line 3";
  EXPECT_EQ(reason_of(news), "class: classes.conf: line 3");
  news.unreachable = "vrdmad is not running";
  EXPECT_EQ(reason_of(news), "vrdmad: vrdmad is not running");
}

PluginStatus status_with(const std::string& not_ready) {
  ResourceStatus small;
  small.class_name = "small";
  small.resource = "vrdma.io/small";
  small.unhealthy = Unhealthy{"cdi", "no file"};
  small.offer = {"small", 3, false, {}};
  small.refusals["many"] = 2;
  small.registered = 4;
  PluginStatus status;
  status.not_ready = not_ready;
  status.kubelet_restarts = 1;
  status.resources.push_back(small);
  return status;
}

TEST(PluginReport, has_metrics) {
  const std::string text = metrics_text(status_with(""));
  for (const char* line :
       {"vrdma_plugin_devices{class=\"small\",health=\"healthy\"} 0\n",
        "vrdma_plugin_devices{class=\"small\",health=\"unhealthy\"} 3\n",
        "vrdma_plugin_allocations_total{class=\"small\"} 0\n",
        "vrdma_plugin_refusals_total{class=\"small\",reason=\"many\"} 2\n",
        "vrdma_plugin_registrations_total{class=\"small\",result=\"accepted\"} 4\n",
        "vrdma_plugin_kubelet_restarts_total 1\n",
        "vrdma_plugin_stream_age_seconds{class=\"small\"} 0\n",
        "vrdma_plugin_unhealthy{class=\"small\",reason=\"cdi\"} 1\n"})
    EXPECT_THAT(text, HasSubstr(line));
  EXPECT_THAT(metrics_text(PluginStatus()), Not(HasSubstr("vrdma_plugin_devices")));
}

TEST(PluginReport, has_metrics_of_the_driver) {
  Claims::Counts counts;
  counts.refused = 2;
  DriverStatus status;
  status.claims = &counts;
  status.slices.generation = 7;
  status.unhealthy["small"] = {"cdi", "it is missing"};
  const std::string text = metrics_text(status);
  for (const char* line : {"vrdma_plugin_claim_prepares_total{result=\"refused\"} 2\n",
                           "vrdma_plugin_claim_unprepares_total{result=\"failed\"} 0\n",
                           "vrdma_plugin_slices_generation 7\n",
                           "vrdma_plugin_unhealthy{class=\"small\",reason=\"cdi\"} 1\n"})
    EXPECT_THAT(text, HasSubstr(line));
}

TEST(PluginReport, answers_probes) {
  EXPECT_STREQ(answer_to("/healthz", "metrics\n", "no kubelet").status, "200 OK");
  EXPECT_STREQ(answer_to("/readyz", "metrics\n", "").status, "200 OK");
  const auto not_ready = answer_to("/readyz", "metrics\n", "no kubelet");
  EXPECT_STREQ(not_ready.status, "503 Service Unavailable");
  EXPECT_EQ(not_ready.body, "no kubelet\n");
  EXPECT_STREQ(answer_to("/", "metrics\n", "").status, "404 Not Found");
}

}  // namespace
}  // namespace vrdma::cli::kubernetes
