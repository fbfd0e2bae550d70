#include "core/serve/tls.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <utility>

#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/base/read_all.h"

namespace vrdma::serve {

namespace {

using base::fail;
using base::Result;

constexpr auto kLookEvery = std::chrono::seconds(1);
constexpr long kMostOfChain = 16384;  // bytes of a client's certificates
constexpr int kDeepest = 4;           // certificates between a client's and the root
constexpr size_t kMostOfFile = size_t{1} << 20;
constexpr std::string_view kBearer = "Bearer ";

constexpr std::string_view kAnswerToPlainText =
    "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 24\r\n"
    "Connection: close\r\n\r\nthis port needs https://";

// What OpenSSL says of the last error, in the form of a sentence's end.
std::string reason() {
  const unsigned long code = ::ERR_peek_last_error();
  const char* const text = ::ERR_reason_error_string(code);
  ::ERR_clear_error();
  return text != nullptr ? text : "unknown error";
}

// Reads a file whole. A secret's must not be open to everybody.
Result<std::string> content_of(const std::string& path, bool secret) {
  const base::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file.valid() || ::fstat(file.get(), &status) != 0) return base::fail_errno("read " + path);
  if (!S_ISREG(status.st_mode)) return fail(EINVAL, path + " is not a file");
  if (secret && (status.st_mode & S_IROTH) != 0)
    return fail(EACCES, path + " is a secret, but every user may read it: chmod o= " + path);
  auto content = base::read_all(file, kMostOfFile);
  if (content) return content;
  const int code = content.error().code();
  return code == EFBIG ? fail(EINVAL, path + " is too long")
                       : base::fail_errno("read " + path, code);
}

std::string hash_of(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> hash{};
  unsigned size = 0;
  (void)::EVP_Digest(text.data(), text.size(), hash.data(), &size, ::EVP_sha256(), nullptr);
  return {reinterpret_cast<const char*>(hash.data()), size};
}

Result<std::string> token_of(const std::string& path) {
  auto content = content_of(path, true);
  if (!content) return content;
  std::string_view token = *content;
  while (token.ends_with('\n') || token.ends_with('\r')) token.remove_suffix(1);
  const bool valid = std::ranges::all_of(token, [](char c) { return c > ' ' && c < 0x7f; });
  if (!valid || token.size() < TlsGuard::kLeastOfToken || token.size() > TlsGuard::kMostOfToken)
    return fail(EINVAL, path + " holds no token: one line of " +
                            std::to_string(TlsGuard::kLeastOfToken) + " to " +
                            std::to_string(TlsGuard::kMostOfToken) +
                            " visible ASCII characters is needed, as of openssl rand -hex 32");
  std::string hash = hash_of(token);
  ::OPENSSL_cleanse(content->data(), content->size());
  return hash;
}

using Bio = std::unique_ptr<BIO, decltype(&::BIO_free)>;
Bio bio_of(const std::string& content) {
  return {::BIO_new_mem_buf(content.data(), static_cast<int>(content.size())), ::BIO_free};
}
using Certificate = std::unique_ptr<X509, decltype(&::X509_free)>;
Certificate next_certificate(const Bio& bio) {
  return {::PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr), ::X509_free};
}

Result<void> use_certificate(SSL_CTX* context, const std::string& path) {
  const auto content = content_of(path, false);
  if (!content) return base::pass(content.error());
  const Bio bio = bio_of(*content);
  const Certificate own = next_certificate(bio);
  if (own == nullptr) return fail(EINVAL, path + " holds no certificate in PEM form");
  if (::SSL_CTX_use_certificate(context, own.get()) != 1)
    return fail(EINVAL, path + " cannot be used: " + reason());
  while (const Certificate next = next_certificate(bio))
    (void)::SSL_CTX_add1_chain_cert(context, next.get());
  ::ERR_clear_error();  // the end of the file is one
  return {};
}

// No password can be given: a question for one must not go to the terminal.
int no_password(char* /*buffer*/, int /*size*/, int /*writes*/, void* /*context*/) { return -1; }

Result<void> use_key(SSL_CTX* context, const std::string& path) {
  auto content = content_of(path, true);
  if (!content) return base::pass(content.error());
  const Bio bio = bio_of(*content);
  const std::unique_ptr<EVP_PKEY, decltype(&::EVP_PKEY_free)> key(
      ::PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr), ::EVP_PKEY_free);
  ::OPENSSL_cleanse(content->data(), content->size());
  ::ERR_clear_error();
  if (key == nullptr)
    return fail(EINVAL, path + " holds no private key in PEM form without password");
  if (::SSL_CTX_use_PrivateKey(context, key.get()) == 1) return {};
  ::ERR_clear_error();
  return fail(EINVAL, path + " is not the key of the certificate");
}

Result<void> use_client_ca(SSL_CTX* context, const std::string& path) {
  const auto content = content_of(path, false);
  if (!content) return base::pass(content.error());
  const Bio bio = bio_of(*content);
  unsigned found = 0;
  while (const Certificate root = next_certificate(bio)) {
    if (::X509_STORE_add_cert(::SSL_CTX_get_cert_store(context), root.get()) != 1 ||
        ::SSL_CTX_add_client_CA(context, root.get()) != 1)
      return fail(EINVAL, path + " cannot be used: " + reason());
    ++found;
  }
  ::ERR_clear_error();
  if (found == 0) return fail(EINVAL, path + " holds no certificate in PEM form");
  ::SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  ::SSL_CTX_set_verify_depth(context, kDeepest);
  return {};
}

class Tls : public Channel {
 public:
  using Ssl = std::unique_ptr<SSL, decltype(&::SSL_free)>;
  Tls(Ssl ssl, std::shared_ptr<SSL_CTX> context, int socket)
      : context_(std::move(context)), ssl_(std::move(ssl)), socket_(socket) {}

  ssize_t receive(char* buffer, size_t size) override {
    return result(::SSL_read(ssl_.get(), buffer, static_cast<int>(size)));
  }
  ssize_t send(const char* bytes, size_t size) override {
    constexpr size_t kAtOnce = size_t{1} << 20;
    return result(::SSL_write(ssl_.get(), bytes, static_cast<int>(std::min(size, kAtOnce))));
  }
  uint32_t waits_for() const override { return waits_for_; }
  bool refused() const override { return refused_; }
  void finish() override {
    (void)::SSL_shutdown(ssl_.get());
    ::ERR_clear_error();
  }

 private:
  // Of SSL_read() or SSL_write(), which also shake hands.
  ssize_t result(int done) {
    if (done > 0) return done;
    const int saved = errno;
    const int error = ::SSL_get_error(ssl_.get(), done);
    const bool speaks_http = ERR_GET_REASON(::ERR_peek_error()) == SSL_R_HTTP_REQUEST;
    ::ERR_clear_error();
    waits_for_ = error == SSL_ERROR_WANT_WRITE ? EPOLLOUT : EPOLLIN;
    errno = EAGAIN;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return -1;
    if (error == SSL_ERROR_ZERO_RETURN) return 0;
    refused_ = error == SSL_ERROR_SSL && ::SSL_is_init_finished(ssl_.get()) == 0;
    if (speaks_http) answer_in_plain_text();
    errno = error == SSL_ERROR_SYSCALL && saved != 0 && saved != EAGAIN ? saved : EPROTO;
    return -1;
  }
  // Reads what has come, since the kernel would otherwise drop the answer with it.
  void answer_in_plain_text() const {
    std::array<char, 8192> ignored{};
    (void)::recv(socket_, ignored.data(), ignored.size(), 0);
    (void)::send(socket_, kAnswerToPlainText.data(), kAnswerToPlainText.size(), MSG_NOSIGNAL);
  }

  const std::shared_ptr<SSL_CTX> context_;
  const Ssl ssl_;
  const int socket_;
  uint32_t waits_for_ = EPOLLIN;
  bool refused_ = false;
};

}  // namespace

Result<std::shared_ptr<TlsGuard>> TlsGuard::load(const TlsFiles& files, const base::Clock& clock) {
  std::shared_ptr<TlsGuard> guard(new TlsGuard(files, clock));
  guard->read_ids_ = guard->ids();
  guard->looked_ = clock.now();
  auto loaded = guard->read();
  if (!loaded) return base::pass(std::move(loaded).error());
  guard->loaded_ = std::move(*loaded);
  return guard;
}

Result<TlsGuard::Loaded> TlsGuard::read() const {
  Loaded loaded{{::SSL_CTX_new(::TLS_server_method()), ::SSL_CTX_free}, {}};
  SSL_CTX* const context = loaded.context.get();
  if (context == nullptr) return fail(ENOMEM, "start OpenSSL: " + reason());
  ::SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  ::SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                     SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE);
  ::SSL_CTX_set_num_tickets(context, 0);
  ::SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  ::SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                  SSL_MODE_RELEASE_BUFFERS);
  ::SSL_CTX_set_max_cert_list(context, kMostOfChain);
  if (auto used = use_certificate(context, files_.certificate); !used)
    return base::pass(std::move(used).error());
  if (auto used = use_key(context, files_.key); !used) return base::pass(std::move(used).error());
  if (!files_.client_ca.empty())
    if (auto used = use_client_ca(context, files_.client_ca); !used)
      return base::pass(std::move(used).error());
  if (files_.token.empty()) return loaded;
  auto hash = token_of(files_.token);
  if (!hash) return base::pass(std::move(hash).error());
  loaded.token_hash = std::move(*hash);
  return loaded;
}

std::vector<std::optional<FileId>> TlsGuard::ids() const {
  return {file_at(files_.certificate), file_at(files_.key), file_at(files_.client_ca),
          file_at(files_.token)};
}

void TlsGuard::look_at_files() {
  const base::TimePoint now = clock_.now();
  if (now - looked_ < kLookEvery) return;
  looked_ = now;
  auto now_there = ids();
  if (now_there == read_ids_) return;
  read_ids_ = std::move(now_there);
  auto again = read();
  if (!again)
    return base::log_warning("the old certificate and token remain in force: " +
                             again.error().message());
  loaded_ = std::move(*again);
  base::log_info("read " + files_.certificate + " again, and the files that belong to it");
}

std::unique_ptr<Channel> TlsGuard::open(int socket) {
  look_at_files();
  Tls::Ssl ssl(::SSL_new(loaded_.context.get()), ::SSL_free);
  if (ssl == nullptr || ::SSL_set_fd(ssl.get(), socket) != 1) {
    ::ERR_clear_error();
    return nullptr;
  }
  ::SSL_set_accept_state(ssl.get());
  return std::make_unique<Tls>(std::move(ssl), loaded_.context, socket);
}

bool TlsGuard::admits(const std::string& authorization) {
  if (files_.token.empty()) return true;
  const std::string_view all = authorization;
  if (!all.starts_with(kBearer)) return false;
  const std::string hash = hash_of(all.substr(kBearer.size()));
  return hash.size() == loaded_.token_hash.size() &&
         ::CRYPTO_memcmp(hash.data(), loaded_.token_hash.data(), hash.size()) == 0;
}

}  // namespace vrdma::serve
