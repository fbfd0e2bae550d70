#include "core/serve/http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "core/serve/unix_path.h"
#include "tests/unit/core/base/run_until.h"
#include "tests/unit/core/base/temp_dir.h"

namespace vrdma::serve {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr auto kNetwork = HttpServer::Reach::kNetwork;
constexpr auto kHost = HttpServer::Reach::kHost;

TEST(Http, checks_addresses) {
  for (const char* good : {"127.0.0.1:80", "0.0.0.0:9091", "[::]:9091", "[::1]:1", "unix:/run/x"})
    EXPECT_TRUE(HttpServer::check(good, kNetwork)) << good;
  for (const char* bad : {"", ":80", "80", "localhost:80", "1.2.3.4:0", "1.2.3.4:65536", "1.2.3.4:",
                          "1.2.3.4:x", "::1:80", "[::1]", "[]:80", "[1.2.3.4]:80", "unix:", "[:1"})
    EXPECT_FALSE(HttpServer::check(bad, kNetwork)) << bad;
}

TEST(Http, of_the_host_alone_is_on_loopback) {
  for (const char* good : {"127.0.0.1:80", "[::1]:9091", "unix:/run/x"})
    EXPECT_TRUE(HttpServer::check(good, kHost)) << good;
  for (const char* bad : {"0.0.0.0:80", "[::]:80", "127.0.0.2:80", "127.0.0.1:0"})
    EXPECT_FALSE(HttpServer::check(bad, kHost)) << bad;
  EXPECT_EQ(HttpServer::path_of("unix:/run/x"), "/run/x");
  EXPECT_FALSE(HttpServer::path_of("127.0.0.1:80"));
}

class HttpTest : public testing::Test {
 protected:
  HttpTest() {
    auto server =
        HttpServer::start(*loop_, "unix:" + path_, kNetwork,
                          [this](const HttpRequest& request, const HttpServer::Answer& answer) {
                            ++questions_;
                            if (request.path != "/later")
                              return answer({"200 OK", "you asked for " + request.path + "\n"});
                            later_ = loop_->after(std::chrono::milliseconds(10), [this, answer] {
                              answer({"200 OK", "it is late\n"});
                              ++answers_;
                            });
                          });
    EXPECT_TRUE(server) << server.error().message();
    server_ = std::move(*server);
  }
  base::Fd connect() {
    auto fd = connect_to(path_);
    EXPECT_TRUE(fd);
    return std::move(*fd);
  }
  // All that the server sends until it closes the connection.
  std::string answer_to(const std::string& request) {
    const base::Fd fd = connect();
    (void)::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL);
    std::string answer;
    EXPECT_TRUE(test::run_until(*loop_, [&] {
      char buffer[4096];
      const ssize_t got = ::recv(fd.get(), buffer, sizeof buffer, 0);
      if (got > 0) answer.append(buffer, static_cast<size_t>(got));
      return got == 0 || (got < 0 && errno == ECONNRESET);
    }));
    return answer;
  }

  const test::TempDir dir_;
  const std::string path_ = dir_ / "http";
  std::unique_ptr<base::EventLoop> loop_ = std::move(*base::EventLoop::create());
  base::EventLoop::Timer later_;
  int questions_ = 0, answers_ = 0;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpTest, answers_a_request) {
  EXPECT_THAT(answer_to("GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n"),
              testing::AllOf(StartsWith("HTTP/1.1 200 OK\r\n"),
                             HasSubstr("\r\n\r\nyou asked for /metrics\n")));
  EXPECT_THAT(answer_to("HEAD / HTTP/1.0\r\n\r\n"), Not(HasSubstr("you asked")));
  EXPECT_THAT(answer_to("POST / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(answer_to("GET \r\n\r\n"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(answer_to("GET /" + std::string(9000, 'x')), StartsWith("HTTP/1.1 431 "));
}

TEST_F(HttpTest, may_answer_later) {
  EXPECT_THAT(answer_to("GET /later HTTP/1.1\r\n\r\n"), HasSubstr("\r\n\r\nit is late\n"));
  const auto asker = connect();
  (void)::send(asker.get(), "GET /later HTTP/1.1\r\n\r\n", 23, MSG_NOSIGNAL);
  EXPECT_TRUE(test::run_until(*loop_, [this] { return questions_ == 2; }));
  server_.reset();  // before its answer
  EXPECT_TRUE(test::run_until(*loop_, [this] { return answers_ == 2; }));
}

TEST_F(HttpTest, has_a_limit_of_connections) {
  std::vector<base::Fd> idle;
  for (int i = 0; i < 16; ++i) idle.push_back(connect());
  EXPECT_EQ(answer_to("GET / HTTP/1.1\r\n\r\n"), "");
  idle.clear();
  EXPECT_TRUE(
      test::run_until(*loop_, [&] { return !answer_to("GET / HTTP/1.1\r\n\r\n").empty(); }));
}

TEST_F(HttpTest, owns_its_socket) {
  EXPECT_FALSE(HttpServer::start(*loop_, "unix:" + path_, kNetwork, {}))
      << "another server listens";
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace vrdma::serve
