// A client of the cluster's API server, with the service account of the plugin's pod.
//
// Blocking calls, thread-safe: each has a connection of its own, which later calls use again. The
// token and the certificate of the authority are read again whenever they are needed, because the
// kubelet replaces them. Only https, only the service account's authority, no proxy, no
// redirection; an answer has at most 4 MiB.
//
// Errors of all calls, with a sentence that begins with "the API server":
//   ENOENT      there is no such object
//   EEXIST      there is, or it has been changed meanwhile
//   ESTALE      the version of the list is too old
//   EACCES      the account may not do it, or is not known
//   EINVAL      the API server refuses the object
//   EAGAIN      it is busy, or has an error
//   EHOSTUNREACH, ETIMEDOUT   it cannot be reached, or does not answer in 10 s
//   EPROTO      the answer is not HTTP, or no success, or larger than 4 MiB
//   ECANCELED   stop() was called, or `go_on` returned false
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace vrdma::cli::kubernetes {

class ApiServer {
 public:
  struct Places {
    std::string url;      // "https://10.96.0.1:443"
    std::string account;  // the directory with the files token and ca.crt
  };
  // From the environment of a pod; empty: it is not that of a pod.
  [[nodiscard]] static std::string url_of_pod();

  explicit ApiServer(Places places);
  ApiServer(const ApiServer&) = delete;
  ApiServer& operator=(const ApiServer&) = delete;
  ~ApiServer();  // after all calls

  // `path`: with the query. The bodies are JSON.
  [[nodiscard]] base::Result<std::string> get(const std::string& path);
  [[nodiscard]] base::Result<std::string> post(const std::string& path, const std::string& body);
  [[nodiscard]] base::Result<std::string> put(const std::string& path, const std::string& body);
  [[nodiscard]] base::Result<void> remove(const std::string& path);  // an absent one is a success
  // Calls `on_line` for each line until it returns false, the answer ends (both are a success), or
  // `seconds` have passed without the end. `go_on` is asked about once a second.
  using OnLine = std::function<bool(const std::string& line)>;
  [[nodiscard]] base::Result<void> watch(const std::string& path, int seconds,
                                         const OnLine& on_line, const std::function<bool()>& go_on);

  // Any thread: ends all calls, within about a second, and all later ones.
  void stop();

 private:
  struct Handle;
  struct Call;
  [[nodiscard]] base::Result<std::string> ask(const char* method, const std::string& path,
                                              const std::string* body);
  [[nodiscard]] base::Result<void> perform(Call& call, const char* method, const std::string& path,
                                           const std::string* body, int seconds);
  [[nodiscard]] std::unique_ptr<Handle> take();
  void give_back(std::unique_ptr<Handle> handle);
  [[nodiscard]] bool stopped();

  const Places places_;
  std::mutex mutex_;  // guards the two below
  bool stop_ = false;
  std::vector<std::unique_ptr<Handle>> idle_;
};

}  // namespace vrdma::cli::kubernetes
