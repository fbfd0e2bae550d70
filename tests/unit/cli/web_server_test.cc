#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <optional>

#include "cli/web/page.h"
#include "cli/web/server.h"
#include "tests/unit/core/base/run_until.h"

namespace vrdma::cli::web {
namespace {

using testing::HasSubstr;
using testing::Not;

class WebServer : public testing::Test {
 protected:
  WebServer() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    reader_ = base::Fd(ends[0]);
    state_ = *serve::TextSource::start(*loop_, base::Fd(ends[1]), [this] { ended_ = true; });
  }
  std::optional<serve::HttpAnswer> ask(const serve::HttpRequest& request) {
    auto got = std::make_shared<std::optional<serve::HttpAnswer>>();
    answer(request, "t0ken", *state_, [got](const serve::HttpAnswer& its) { *got = its; });
    if (!*got) pending_ = got;
    return *got;
  }
  // What vrdmactl does: one text for each question.
  size_t serve(const std::string& text) {
    std::array<char, 16> questions{};
    const ssize_t got = ::recv(reader_.get(), questions.data(), questions.size(), MSG_DONTWAIT);
    const serve::TextSource::Header header{text.size()};
    EXPECT_EQ(::send(reader_.get(), &header, sizeof header, 0),
              static_cast<ssize_t>(sizeof header));
    EXPECT_EQ(::send(reader_.get(), text.data(), text.size(), 0),
              static_cast<ssize_t>(text.size()));
    return static_cast<size_t>(std::max<ssize_t>(got, 0));
  }

  std::unique_ptr<base::EventLoop> loop_ = *base::EventLoop::create();
  base::Fd reader_;
  std::unique_ptr<serve::TextSource> state_;
  std::shared_ptr<std::optional<serve::HttpAnswer>> pending_;
  bool ended_ = false;
};

TEST_F(WebServer, the_page_is_in_the_program_and_executes_only_its_own_file) {
  for (const auto& [path, type] : {std::pair{"/", "text/html; charset=utf-8"},
                                   {"/page.css", "text/css; charset=utf-8"},
                                   {"/page.js", "text/javascript; charset=utf-8"}}) {
    const auto got = ask({path, "127.0.0.1:8080", ""});
    ASSERT_TRUE(got) << path;
    EXPECT_STREQ(got->status, "200 OK");
    EXPECT_STREQ(got->type, type);
    EXPECT_THAT(got->headers,
                HasSubstr("Content-Security-Policy: default-src 'none'; script-src 'self'"));
    EXPECT_THAT(got->headers, Not(HasSubstr("unsafe")));
    EXPECT_THAT(got->headers, HasSubstr("frame-ancestors 'none'"));
    EXPECT_THAT(got->headers, HasSubstr("X-Content-Type-Options: nosniff\r\n"));
  }
  const std::string& page = find_file("/")->content;
  EXPECT_THAT(page, HasSubstr("<script src=\"/page.js\" defer></script>"));
  for (const char* inlined : {"style=", "onclick=", "onload=", "<style", "javascript:", "http"})
    EXPECT_THAT(page, Not(HasSubstr(inlined)));
  // Texts of tenants never become markup.
  for (const char* markup :
       {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("})
    EXPECT_THAT(find_file("/page.js")->content, Not(HasSubstr(markup)));
  EXPECT_STREQ(ask({"/etc/passwd", "localhost", ""})->status, "404 Not Found");
}

TEST_F(WebServer, a_name_that_resolves_to_this_host_is_refused) {
  for (const char* host : {"", "evil.example", "evil.example:8080", "127.0.0.1.evil.example",
                           "localhost.evil.example", "10.0.0.1:8080", "[::1].evil", "127.0.0.12"})
    EXPECT_STREQ(ask({"/", host, "Bearer t0ken"})->status, "403 Forbidden") << host;
  for (const char* host : {"127.0.0.1", "127.0.0.1:9000", "localhost:8080", "[::1]:8080"})
    EXPECT_STREQ(ask({"/", host, ""})->status, "200 OK") << host;
}

TEST_F(WebServer, the_state_needs_the_token) {
  for (const char* wrong : {"", "Bearer", "Bearer ", "Bearer t0keN", "Bearer t0ken ", "Bearer t0ke",
                            "t0ken", "Basic t0ken"}) {
    const auto got = ask({"/state", "127.0.0.1:8080", wrong});
    ASSERT_TRUE(got) << wrong;
    EXPECT_STREQ(got->status, "401 Unauthorized") << wrong;
  }
  EXPECT_EQ(serve(""), 0u) << "vrdmad was asked";
}

TEST_F(WebServer, those_who_ask_at_the_same_time_share_an_answer) {
  EXPECT_FALSE(ask({"/state", "localhost:1", "Bearer t0ken"}));
  const auto first = pending_;
  EXPECT_FALSE(ask({"/state", "localhost:1", "Bearer t0ken"}));
  const auto second = pending_;
  EXPECT_EQ(serve("{\"a\": 1}" + std::string(100'000, ' ')), 1u);
  ASSERT_TRUE(test::run_until(*loop_, [&] { return first->has_value() && second->has_value(); }));
  EXPECT_STREQ((*second)->type, "application/json");
  EXPECT_EQ((*first)->body.size(), 100'008u);
  EXPECT_THAT((*first)->headers, HasSubstr("nosniff"));
}

TEST_F(WebServer, it_ends_with_vrdmactl) {
  reader_.reset();
  EXPECT_TRUE(test::run_until(*loop_, [&] { return ended_; }));
}

}  // namespace
}  // namespace vrdma::cli::web
