// The operator's output: log lines, the audit, the metrics endpoint, sums by tenant.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/details/log_msg.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/unit/vrdmad/admin/fixture.h"
#include "vrdmad/admin/metrics.h"
#include "vrdmad/control/counters.h"
#include "vrdmad/log/audit.h"
#include "vrdmad/log/log.h"

namespace vrdma::vrdmad {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(Log, a_line_is_json_whatever_it_says) {
  const std::string odd = "vdevice \"x\"\n\t\x01\xff\\ \xc3\xa9";
  const std::string line =
      json_line(spdlog::log_clock::now(), "info", odd, {{"audit", odd}, {"pid", int64_t{7}}});
  EXPECT_THAT(line, Not(HasSubstr("\n")));
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["level"], "info");
  EXPECT_EQ(json["pid"], 7);
  EXPECT_THAT(json["message"].get<std::string>(), StartsWith("vdevice \"x\"\n\t\x01"));
  EXPECT_THAT(json["time"].get<std::string>(),
              testing::MatchesRegex("[0-9-]+T[0-9:]+\\.[0-9]+[+-][0-9][0-9]:[0-9][0-9]"));
}

TEST(Log, a_line_of_text_is_one_line_whatever_it_says) {
  const spdlog::details::log_msg message("", spdlog::level::info, "e\n\xff\x1b");
  spdlog::memory_buf_t line;
  text_formatter("%l %*")->format(message, line);
  EXPECT_EQ(std::string(line.data(), line.size()), "info e\\x0a\\xff\\x1b\n");
}

TEST(Audit, a_line_a_change_in_a_file_that_may_be_moved_away) {
  const TempDir temp;
  const std::string path = temp.path() + "/audit";
  auto audit = open_audit(path).value();
  const AdminPeer who{0, 4711, "vrdmactl"};
  audit({who, "vdev create", "red0", "netns=red", 0, ""});
  std::filesystem::rename(path, path + ".1");
  audit({who, "vdev delete", "red0", "", ENOENT, "there is no\nvdevice 'red0'"});
  std::ifstream first(path + ".1"), second(path);
  std::string line;
  ASSERT_TRUE(std::getline(first, line));
  auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["audit"], "vdev create");
  EXPECT_EQ(json["object"], "red0");
  EXPECT_EQ(json["arguments"], "netns=red");
  EXPECT_EQ(json["result"], "done");
  EXPECT_EQ(json["message"], "audit: uid 0 pid 4711 (vrdmactl): vdev create red0 netns=red: done");
  EXPECT_FALSE(std::getline(first, line));
  ASSERT_TRUE(std::getline(second, line));
  json = nlohmann::json::parse(line);
  EXPECT_EQ(json["result"], "refused");
  EXPECT_EQ(json["errno"], ENOENT);
  EXPECT_THAT(json["message"].get<std::string>(), Not(HasSubstr("\n")));
  EXPECT_FALSE(open_audit(temp.path() + "/none/audit"));
}

TEST(TenantTotals, what_only_grows_outlives_the_vdevice) {
  TenantTotals gone;
  gone.add({"old", "work_bytes", 5, {"transport", "direct"}, false, "red"});
  TenantTotals now = gone;
  now.add({"new", "work_bytes", 7, {"transport", "direct"}, false, "red"});
  now.add({"new", "work_bytes", 9, {"transport", "connected"}, false, "red"});
  now.add({"new", "quota_limit", 9, {"kind", "qp"}, true, "red"});
  now.add({"else", "work_bytes", 1, {"transport", "direct"}, false, "blue"});
  const auto rows = now.rows();
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].scope, "tenant/blue");
  EXPECT_EQ(rows[1].label.second, "connected");
  EXPECT_EQ(rows[1].value, 9U);
  EXPECT_EQ(rows[2].scope, "tenant/red");
  EXPECT_EQ(rows[2].value, 12U);
  now.keep({"blue", "green"});
  ASSERT_EQ(now.rows().size(), 1U);
  EXPECT_EQ(now.rows()[0].scope, "tenant/blue");
}

const std::vector<CounterRow> kRows{
    {"daemon", "vdevices", 1, {}, true},
    {"red0", "work_bytes", uint64_t{1} << 40, {"transport", "direct"}, false, "r", 7, "n"},
    {"tenant/r", "work_bytes", 7, {"transport", "direct"}, false, "r"}};

class MetricsTest : public testing::Test {
 protected:
  MetricsTest() {
    server_ = serve_metrics(*loop_, "unix:" + path_, scrapes_).value();
    control_ = std::thread([this] { loop_->run(); });
  }
  ~MetricsTest() override {
    loop_->stop();
    control_.join();
  }
  int dial() const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, path_.size());
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
  // The reply to `pieces`, sent one after the other.
  std::string ask(const std::vector<std::string>& pieces) const {
    const int fd = dial();
    for (const auto& piece : pieces) {
      EXPECT_EQ(::send(fd, piece.data(), piece.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(piece.size()));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    std::string answer;
    std::array<char, 4096> buffer{};
    for (ssize_t got; (got = ::recv(fd, buffer.data(), buffer.size(), 0)) > 0;)
      answer.append(buffer.data(), static_cast<size_t>(got));
    ::close(fd);
    return answer;
  }

  TempDir temp_;
  std::string path_ = temp_.path() + "/metrics";
  std::unique_ptr<base::EventLoop> loop_ = base::EventLoop::create().value();
  Scrapes scrapes_{*loop_, [](const auto& then) { then(kRows); }};
  std::unique_ptr<serve::HttpServer> server_;
  std::thread control_;
};

TEST_F(MetricsTest, answers_in_the_text_format) {
  const std::string answer = ask({"GET /met", "rics HTTP/1.1\r\nHost: x\r\n", "\r\n"});
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("text/plain; version=0.0.4"));
  EXPECT_THAT(answer, HasSubstr("# TYPE vrdma_vdevices gauge\nvrdma_vdevices 1\n"));
  EXPECT_THAT(answer, HasSubstr("# TYPE vrdma_work_bytes_total counter\n"));
  EXPECT_THAT(answer,
              HasSubstr("vrdma_work_bytes_total{vdevice=\"red0\",netns=\"n\",id=\"7\",tenant=\"r\","
                        "transport=\"direct\"} 1099511627776\n"));
  EXPECT_THAT(answer,
              HasSubstr("vrdma_tenant_work_bytes_total{tenant=\"r\",transport=\"direct\"} 7\n"));
}

TEST_F(MetricsTest, refuses_what_is_no_question_for_it) {
  EXPECT_THAT(ask({"POST /metrics HTTP/1.1\r\n\r\n"}), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(ask({"GET / HTTP/1.1\r\n\r\n"}), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(ask({"\r\n\r\n"}), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(ask({std::string(9000, 'x')}), StartsWith("HTTP/1.1 431 "));
  const std::string head = ask({"HEAD /metrics HTTP/1.1\r\n\r\n"});
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(head, Not(HasSubstr("vrdma_")));
}

TEST_F(MetricsTest, silent_clients_do_not_keep_it_from_others_for_long) {
  std::vector<int> silent;
  for (int i = 0; i < 16; ++i) silent.push_back(dial());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  char byte = 0;
  const int late = dial();
  EXPECT_EQ(::recv(late, &byte, 1, 0), 0) << "a connection beyond the limit is closed";
  ::close(late);
  for (const int fd : silent) ::close(fd);
  EXPECT_TRUE(eventually(
      [this] { return ask({"GET /metrics HTTP/1.1\r\n\r\n"}).rfind("HTTP/1.1 200 OK", 0) == 0; }));
}

TEST(Metrics, only_for_this_host) {
  const auto loop = base::EventLoop::create().value();
  Scrapes scrapes(*loop, {});
  for (const char* address : {"0.0.0.0:9464", "[::]:9464", "127.0.0.1", "127.0.0.1:0", ":9464",
                              "127.0.0.1:65536", "127.0.0.1:1x", "unix:", "", "localhost:9464"}) {
    const auto server = serve_metrics(*loop, address, scrapes);
    ASSERT_FALSE(server) << address;
    EXPECT_EQ(server.error().code(), EINVAL) << address;
  }
}

TEST(Metrics, a_socket_that_a_dead_daemon_left_is_replaced_and_a_living_ones_not) {
  const TempDir temp;
  const auto loop = base::EventLoop::create().value();
  Scrapes scrapes(*loop, {});
  const std::string path = temp.path() + "/m";
  auto first = serve_metrics(*loop, "unix:" + path, scrapes);
  ASSERT_TRUE(first);
  const auto second = serve_metrics(*loop, "unix:" + path, scrapes);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), EADDRINUSE);
  std::filesystem::rename(path, path + "~");
  first->reset();
  std::filesystem::rename(path + "~", path);
  EXPECT_TRUE(serve_metrics(*loop, "unix:" + path, scrapes));
  std::ofstream(temp.path() + "/file") << "precious";
  EXPECT_FALSE(serve_metrics(*loop, "unix:" + temp.path() + "/file", scrapes));
  EXPECT_TRUE(std::filesystem::exists(temp.path() + "/file"));
}

}  // namespace
}  // namespace vrdma::vrdmad
