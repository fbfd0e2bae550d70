// TLS and a bearer token for an HTTP server on the network (http.h), by OpenSSL.
//
// TLS 1.2 and later, no renegotiation, no compression, no resumption: a scraper connects once in
// some seconds, so nothing of a connection is kept. The files are read again when they change,
// within a second; while they do not fit each other (one of them has been replaced and not yet the
// other) or cannot be read, the old ones remain in force.
//
// A client must prove what the files ask for: a certificate by `client_ca`, the token, or both.
// Only the token's hash is kept, and hashes are compared in constant time.
//
// The process must ignore SIGPIPE. Thread: that of the server.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/serve/guard.h"
#include "core/serve/unix_path.h"

struct ssl_ctx_st;

namespace vrdma::serve {

// Paths of PEM files, and of the token's.
struct TlsFiles {
  std::string certificate;  // the server's, followed by those between it and the root
  std::string key;          // the private key of the first
  std::string client_ca;    // empty: clients need no certificate
  std::string token;        // empty: clients need no token
};

class TlsGuard : public Guard {
 public:
  static constexpr size_t kLeastOfToken = 16, kMostOfToken = 4096;  // characters

  // EACCES: a file cannot be read, or the key or the token can be read by everybody. EINVAL: its
  // content is not what it should be. The sentence names the file.
  [[nodiscard]] static base::Result<std::shared_ptr<TlsGuard>> load(const TlsFiles& files,
                                                                    const base::Clock& clock);
  [[nodiscard]] std::unique_ptr<Channel> open(int socket) override;
  [[nodiscard]] bool admits(const std::string& authorization) override;

 private:
  struct Loaded {
    std::shared_ptr<ssl_ctx_st> context;
    std::string token_hash;
  };
  TlsGuard(TlsFiles files, const base::Clock& clock) : files_(std::move(files)), clock_(clock) {}
  [[nodiscard]] base::Result<Loaded> read() const;
  [[nodiscard]] std::vector<std::optional<FileId>> ids() const;
  void look_at_files();

  const TlsFiles files_;
  const base::Clock& clock_;
  Loaded loaded_;
  std::vector<std::optional<FileId>> read_ids_;  // when they were read last, also in vain
  base::TimePoint looked_;
};

}  // namespace vrdma::serve
