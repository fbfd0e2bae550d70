// TLS, certificates of both sides and the token, by OpenSSL on both ends of a socket of loopback.
#include "core/serve/tls.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "core/serve/http.h"
#include "tests/unit/core/base/run_until.h"
#include "tests/unit/core/base/temp_dir.h"

namespace vrdma::serve {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string kToken = "0123456789abcdef0123456789abcdef";

template <class T, void (*kFree)(T*)>
struct Free {
  void operator()(T* object) const { kFree(object); }
};
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY, ::EVP_PKEY_free>>;
using Cert = std::unique_ptr<X509, Free<X509, ::X509_free>>;

Key make_key() { return Key(::EVP_EC_gen("P-256")); }

// A certificate for `key` by `issuer`; by itself if there is none.
Cert make_cert(const char* name, EVP_PKEY* key, X509* issuer, EVP_PKEY* issuer_key) {
  Cert cert(::X509_new());
  ::X509_set_version(cert.get(), X509_VERSION_3);
  static long serial = 1;
  ::ASN1_INTEGER_set(::X509_get_serialNumber(cert.get()), serial++);
  ::X509_gmtime_adj(::X509_getm_notBefore(cert.get()), -60);
  ::X509_gmtime_adj(::X509_getm_notAfter(cert.get()), 3600);
  ::X509_set_pubkey(cert.get(), key);
  X509_NAME* const subject = ::X509_get_subject_name(cert.get());
  ::X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
  ::X509_set_issuer_name(cert.get(),
                         ::X509_get_subject_name(issuer != nullptr ? issuer : cert.get()));
  if (issuer == nullptr) {
    X509_EXTENSION* const ca =
        ::X509V3_EXT_conf_nid(nullptr, nullptr, NID_basic_constraints, "critical,CA:TRUE");
    ::X509_add_ext(cert.get(), ca, -1);
    ::X509_EXTENSION_free(ca);
  }
  ::X509_sign(cert.get(), issuer_key, ::EVP_sha256());
  return cert;
}

struct Identity {
  explicit Identity(const char* name, const Identity* by = nullptr)
      : key(make_key()),
        cert(make_cert(name, key.get(), by != nullptr ? by->cert.get() : nullptr,
                       by != nullptr ? by->key.get() : key.get())) {}
  Key key;
  Cert cert;
};

class TlsTest : public testing::Test {
 protected:
  TlsTest() {
    ::signal(SIGPIPE, SIG_IGN);
    write_identity(server_);
    write("token", kToken + "\n", 0600);
    write_cert("ca", ca_.cert.get());
  }
  static void SetUpTestSuite() { ::SSL_load_error_strings(); }

  void write(const std::string& name, const std::string& content, mode_t mode) {
    const std::string path = dir_ / (name + "~");
    std::ofstream(path) << content;
    ::chmod(path.c_str(), mode);
    std::filesystem::rename(path, dir_ / name);
  }
  static std::string text_of(BIO* bio) {
    char* data = nullptr;
    const long size = ::BIO_get_mem_data(bio, &data);
    std::string text(data, static_cast<size_t>(size));
    ::BIO_free(bio);
    return text;
  }
  void write_cert(const std::string& name, X509* cert) {
    BIO* const bio = ::BIO_new(::BIO_s_mem());
    ::PEM_write_bio_X509(bio, cert);
    write(name, text_of(bio), 0644);
  }
  void write_key(const std::string& name, EVP_PKEY* key, mode_t mode = 0600) {
    BIO* const bio = ::BIO_new(::BIO_s_mem());
    ::PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
    write(name, text_of(bio), mode);
  }
  void write_identity(const Identity& identity) {
    write_cert("cert", identity.cert.get());
    write_key("key", identity.key.get());
  }

  TlsFiles files(bool token, bool client_ca) const {
    return {dir_ / "cert", dir_ / "key", client_ca ? dir_ / "ca" : "", token ? dir_ / "token" : ""};
  }
  void start(bool token, bool client_ca) {
    auto guard = TlsGuard::load(files(token, client_ca), clock_);
    ASSERT_TRUE(guard) << guard.error().message();
    // The kernel chooses the port.
    base::Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&any), sizeof any), 0);
    ASSERT_EQ(::listen(fd.get(), 64), 0);
    socklen_t size = sizeof address_;
    ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address_), &size);
    server_of_http_ = HttpServer::start(
                          *loop_, {std::move(fd), "", true},
                          [this](const HttpRequest&, const HttpServer::Answer& answer) {
                            answer({"200 OK", std::string(body_, 'x') + "\n"});
                          },
                          std::move(*guard))
                          .value();
  }
  // `from`: the last byte of the client's address 127.0.0.x.
  base::Fd connect(uint8_t from = 1) const {
    base::Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + from);
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own), 0);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_),
              0);
    return fd;
  }
  struct Client {
    std::string token = kToken;
    const Identity* identity = nullptr;
    int version = 0;  // the highest; 0: any
    std::string header = "Authorization: Bearer ";
  };
  // What the client reads, or why it does not.
  std::string ask_now(const Client& client, const base::Fd& fd) const {
    const std::unique_ptr<SSL_CTX, Free<SSL_CTX, ::SSL_CTX_free>> context(
        ::SSL_CTX_new(::TLS_client_method()));
    ::SSL_CTX_set_min_proto_version(context.get(), 0);
    ::SSL_CTX_set_security_level(context.get(), 0);
    if (client.version != 0) ::SSL_CTX_set_max_proto_version(context.get(), client.version);
    if (client.identity != nullptr) {
      ::SSL_CTX_use_certificate(context.get(), client.identity->cert.get());
      ::SSL_CTX_use_PrivateKey(context.get(), client.identity->key.get());
    }
    const std::unique_ptr<SSL, Free<SSL, ::SSL_free>> ssl(::SSL_new(context.get()));
    ::SSL_set_fd(ssl.get(), fd.get());
    if (::SSL_connect(ssl.get()) != 1) return "no handshake";
    const Cert theirs(::SSL_get1_peer_certificate(ssl.get()));
    const std::string request =
        "GET /metrics HTTP/1.1\r\n" +
        (client.token.empty() ? "" : client.header + client.token + "\r\n") + "\r\n";
    if (::SSL_write(ssl.get(), request.data(), static_cast<int>(request.size())) <= 0)
      return "cannot write";
    std::string answer =
        ::X509_cmp(theirs.get(), server_.cert.get()) == 0 ? "" : "another server: ";
    std::array<char, 4096> part{};
    for (int got; (got = ::SSL_read(ssl.get(), part.data(), part.size())) > 0;)
      answer.append(part.data(), static_cast<size_t>(got));
    return answer.empty() ? "nothing" : answer;
  }
  std::string ask(const Client& client, uint8_t from = 1) {
    auto answer = std::async(std::launch::async, [&] { return ask_now(client, connect(from)); });
    EXPECT_TRUE(test::run_until(*loop_, [&] {
      return answer.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    }));
    return answer.get();
  }
  std::string load_error(bool token = true, bool client_ca = true) const {
    const auto guard = TlsGuard::load(files(token, client_ca), clock_);
    return guard ? "" : guard.error().message();
  }

  struct TestClock final : base::Clock {
    base::TimePoint time{};
    base::TimePoint now() const override { return time; }
  };
  const test::TempDir dir_;
  const Identity ca_{"ca"}, stranger_{"stranger"}, server_{"server"}, client_{"client", &ca_};
  TestClock clock_;
  size_t body_ = 10;
  sockaddr_in address_{};
  std::unique_ptr<base::EventLoop> loop_ = std::move(*base::EventLoop::create());
  std::unique_ptr<HttpServer> server_of_http_;
};

TEST_F(TlsTest, gives_an_answer_to_the_token_alone) {
  start(true, false);
  EXPECT_THAT(ask({}), AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("\r\n\r\nxxxxxxxxxx\n")));
  EXPECT_THAT(ask({.token = ""}),
              AllOf(StartsWith("HTTP/1.1 401 Unauthorized\r\n"),
                    HasSubstr("\r\nWWW-Authenticate: Bearer\r\n"), Not(HasSubstr("xxx"))));
  for (const std::string& wrong :
       {kToken + "0", kToken.substr(1), std::string("x"), " " + kToken.substr(2)})
    EXPECT_THAT(ask({.token = wrong}, 2), StartsWith("HTTP/1.1 401 ")) << wrong;
  for (const char* header : {"authorization:Bearer ", "AUTHORIZATION: \tBearer "})
    EXPECT_THAT(ask({.header = header}, 3), StartsWith("HTTP/1.1 200 ")) << header;
  for (const char* header : {"Authorization: Basic ", "X-Authorization: Bearer ", "Authorization: ",
                             "Authorization: Bearer x\r\nAuthorization: Bearer "})
    EXPECT_THAT(ask({.header = header}, 4), StartsWith("HTTP/1.1 401 ")) << header;
  EXPECT_EQ(server_of_http_->refusals()->unauthorized, 9u);
}

TEST_F(TlsTest, gives_an_answer_to_a_certificate_of_the_ca_alone) {
  start(false, true);
  EXPECT_THAT(ask({.token = "", .identity = &client_}), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(ask({}), Not(StartsWith("HTTP")));
  EXPECT_THAT(ask({.identity = &stranger_}), Not(StartsWith("HTTP")));
  EXPECT_TRUE(test::run_until(*loop_, [&] { return server_of_http_->refusals()->unproven == 2; }));
}

TEST_F(TlsTest, may_ask_for_both) {
  start(true, true);
  EXPECT_THAT(ask({.identity = &client_}), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(ask({.token = "", .identity = &client_}), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(ask({}), Not(StartsWith("HTTP")));
}

TEST_F(TlsTest, speaks_no_old_version) {
  start(true, false);
  EXPECT_THAT(ask({.version = TLS1_2_VERSION}), StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(ask({.version = TLS1_1_VERSION}), "no handshake");
}

TEST_F(TlsTest, tells_a_client_without_tls) {
  start(true, false);
  auto answer = std::async(std::launch::async, [&] {
    const auto fd = connect();
    (void)::send(fd.get(), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 34, MSG_NOSIGNAL);
    std::string text(1000, 0);
    text.resize(static_cast<size_t>(
        std::max<ssize_t>(0, ::recv(fd.get(), text.data(), text.size(), MSG_WAITALL))));
    return text;
  });
  EXPECT_TRUE(test::run_until(*loop_, [&] {
    return answer.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }));
  EXPECT_THAT(answer.get(),
              AllOf(StartsWith("HTTP/1.1 400 "), HasSubstr("\r\n\r\nthis port needs https://")));
  EXPECT_EQ(server_of_http_->refusals()->unproven, 1u);
}

TEST_F(TlsTest, sends_large_answers) {
  body_ = 3'000'000;
  start(true, false);
  EXPECT_GT(ask({}).size(), body_);
}

TEST_F(TlsTest, is_not_kept_from_others_by_silent_peers) {
  start(true, false);
  std::vector<base::Fd> silent;
  for (uint8_t host = 10; host < 30; ++host) {  // more than it serves at a time
    for (int i = 0; i < 5; ++i) silent.push_back(connect(host));
    while (loop_->step()) {
    }
  }
  EXPECT_THAT(ask({}), StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(server_of_http_->refusals()->crowded, 20u) << "the fifth of each";
  EXPECT_GT(server_of_http_->refusals()->late, 0u) << "the oldest are gone";
}

TEST_F(TlsTest, reads_its_files_again) {
  start(true, false);
  const Identity next{"next"};
  write_identity(next);
  const std::string token = "fedcba9876543210";
  write("token", token, 0600);
  EXPECT_THAT(ask({}), StartsWith("HTTP/1.1 200 ")) << "it looks once in a second";
  clock_.time += std::chrono::seconds(1);
  EXPECT_THAT(ask({}), StartsWith("another server: HTTP/1.1 401 "));
  EXPECT_THAT(ask({.token = token}), StartsWith("another server: HTTP/1.1 200 "));
}

TEST_F(TlsTest, keeps_the_old_files_until_the_new_ones_fit) {
  start(true, false);
  const Identity next{"next"};
  write_cert("cert", next.cert.get());
  clock_.time += std::chrono::seconds(1);
  EXPECT_THAT(ask({}), StartsWith("HTTP/1.1 200 ")) << "the key is missing yet";
  std::filesystem::remove(dir_ / "token");
  write_key("key", next.key.get());
  clock_.time += std::chrono::seconds(1);
  EXPECT_THAT(ask({}), StartsWith("HTTP/1.1 200 ")) << "the token is missing";
  write("token", kToken, 0600);
  clock_.time += std::chrono::seconds(1);
  EXPECT_THAT(ask({}), StartsWith("another server: HTTP/1.1 200 "));
}

TEST_F(TlsTest, says_which_file_is_wrong) {
  EXPECT_EQ(load_error(), "");
  write_key("key", server_.key.get(), 0644);
  EXPECT_THAT(load_error(), HasSubstr("/key is a secret, but every user may read it"));
  write_key("key", stranger_.key.get());
  EXPECT_THAT(load_error(), HasSubstr("/key is not the key of the certificate"));
  write("key", "", 0600);
  EXPECT_THAT(load_error(), HasSubstr("/key holds no private key"));
  write_identity(server_);
  for (const char* token :
       {"", "short", "0123456789 abcdef", "0123456789abcdef\n0123456789abcdef"}) {
    write("token", token, 0600);
    EXPECT_THAT(load_error(), HasSubstr("/token holds no token")) << token;
  }
  write("token", kToken, 0604);
  EXPECT_THAT(load_error(), HasSubstr("/token is a secret"));
  write("token", kToken, 0640);
  write("ca", "nonsense", 0644);
  EXPECT_THAT(load_error(), HasSubstr("/ca holds no certificate"));
  std::filesystem::remove(dir_ / "cert");
  EXPECT_THAT(load_error(), AllOf(HasSubstr("/cert: No such file"), StartsWith("read ")));
  std::filesystem::create_directory(dir_ / "cert");
  EXPECT_THAT(load_error(), HasSubstr("/cert is not a file"));
}

}  // namespace
}  // namespace vrdma::serve
