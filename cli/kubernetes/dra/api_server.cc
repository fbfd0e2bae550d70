#include "cli/kubernetes/dra/api_server.h"

#include <curl/curl.h>

#include <cstdlib>

#include "cli/kubernetes/node/json.h"
#include "cli/kubernetes/node/text_file.h"
#include "core/base/printable.h"

namespace vrdma::cli::kubernetes {

namespace {

constexpr size_t kLargestAnswer = 4 << 20;
constexpr size_t kLargestToken = 64 << 10;
constexpr long kConnectSeconds = 5;
constexpr int kSeconds = 10;
constexpr size_t kMostIdle = 8;
constexpr size_t kMostOfMessage = 512;

void use_curl() {
  static const bool used = [] { return ::curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK; }();
  (void)used;  // curl_easy_init() fails where this does
}

// The sentence of a Status, or nothing.
std::string message_of(const std::string& body) {
  const auto status = nlohmann::json::parse(body, nullptr, false);
  const std::string message = base::printable(text_of(status, "message"), kMostOfMessage);
  return message.empty() ? "" : ": " + message;
}

int errno_of(long status) {
  switch (status) {
    case 404:
      return ENOENT;
    case 409:
      return EEXIST;
    case 410:
      return ESTALE;
    case 401:
    case 403:
      return EACCES;
    case 400:
    case 405:
    case 415:
    case 422:
      return EINVAL;
    case 408:
    case 429:
      return EAGAIN;
    default:
      return status >= 500 ? EAGAIN : EPROTO;
  }
}

}  // namespace

struct ApiServer::Handle {
  CURL* curl = ::curl_easy_init();
  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { ::curl_easy_cleanup(curl); }
};

// One request. Its answer is `body`, or goes to `on_line` where that is set.
struct ApiServer::Call {
  ApiServer& server;
  CURL* curl = nullptr;
  std::string body = {};
  const OnLine* on_line = nullptr;
  const std::function<bool()>* go_on = nullptr;
  bool too_large = false;
  bool enough = false;  // on_line said so

  // Called by libcurl with a piece of the answer; another number than its size ends the request.
  static size_t receive(char* data, size_t, size_t size, void* self) {
    return static_cast<Call*>(self)->take(std::string_view(data, size)) ? size : size + 1;
  }
  bool take(std::string_view piece) {
    too_large = body.size() + piece.size() > kLargestAnswer;
    if (too_large) return false;
    body += piece;
    if (on_line == nullptr) return true;
    long status = 0;
    ::curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200) return true;  // the body of an error
    size_t begin = 0;
    for (size_t end = 0; (end = body.find('\n', begin)) != std::string::npos; begin = end + 1)
      if (!(*on_line)(body.substr(begin, end - begin))) {
        enough = true;
        return false;
      }
    body.erase(0, begin);
    return true;
  }
  // Called about once a second, and more often while data flows; other than 0 ends the request.
  static int look(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    const auto& call = *static_cast<Call*>(self);
    const bool wanted = call.go_on == nullptr || (*call.go_on)();
    return call.server.stopped() || !wanted ? 1 : 0;
  }
};

std::string ApiServer::url_of_pod() {
  const char* const host = ::getenv("KUBERNETES_SERVICE_HOST");
  const char* const port = ::getenv("KUBERNETES_SERVICE_PORT");
  if (host == nullptr || port == nullptr) return {};
  const std::string name = host;
  const bool is_v6 = name.find(':') != std::string::npos;
  return "https://" + (is_v6 ? "[" + name + "]" : name) + ":" + port;
}

ApiServer::ApiServer(Places places) : places_(std::move(places)) { use_curl(); }
ApiServer::~ApiServer() = default;

void ApiServer::stop() {
  const std::lock_guard lock(mutex_);
  stop_ = true;
}

bool ApiServer::stopped() {
  const std::lock_guard lock(mutex_);
  return stop_;
}

std::unique_ptr<ApiServer::Handle> ApiServer::take() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return std::make_unique<Handle>();
  auto handle = std::move(idle_.back());
  idle_.pop_back();
  return handle;
}

void ApiServer::give_back(std::unique_ptr<Handle> handle) {
  ::curl_easy_reset(handle->curl);  // keeps the connection
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kMostIdle) idle_.push_back(std::move(handle));
}

base::Result<void> ApiServer::perform(Call& call, const char* method, const std::string& path,
                                      const std::string* body, int seconds) {
  const std::string authority = places_.account + "/ca.crt";
  auto token = read_text_file(places_.account + "/token", kLargestToken);
  if (!token)
    return base::fail(EACCES, "the API server needs the token " + places_.account +
                                  "/token: " + token.error().message());
  while (!token->empty() && (token->back() == '\n' || token->back() == ' ')) token->pop_back();
  if (token->empty() || token->find_first_of("\r\n") != std::string::npos)
    return base::fail(EACCES,
                      "the API server needs a token, and " + places_.account + "/token holds none");
  auto handle = take();
  CURL* const curl = handle->curl;
  if (curl == nullptr) return base::fail(ENOMEM, "the API server: libcurl does not start");
  call.curl = curl;
  std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(nullptr, ::curl_slist_free_all);
  for (const char* const line : {"Content-Type: application/json", "Accept: application/json"})
    headers.reset(::curl_slist_append(headers.release(), line));
  char reason[CURL_ERROR_SIZE] = "";
  const auto set = [curl](CURLoption option, auto value) {
    ::curl_easy_setopt(curl, option, value);
  };
  set(CURLOPT_URL, (places_.url + path).c_str());
  set(CURLOPT_PROTOCOLS_STR, "https");
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_NOPROXY, "*");
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  set(CURLOPT_CAINFO, authority.c_str());
  set(CURLOPT_CAPATH, static_cast<const char*>(nullptr));  // no other authority
  set(CURLOPT_CA_CACHE_TIMEOUT, 0L);
  set(CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BEARER));
  set(CURLOPT_XOAUTH2_BEARER, token->c_str());
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_USERAGENT, "vrdma-device-plugin/" VRDMA_VERSION);
  set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  set(CURLOPT_TIMEOUT, static_cast<long>(seconds));
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_TCP_KEEPIDLE, 10L);
  set(CURLOPT_TCP_KEEPINTVL, 5L);
  set(CURLOPT_ERRORBUFFER, static_cast<char*>(reason));
  set(CURLOPT_WRITEFUNCTION, &Call::receive);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&call));
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &Call::look);
  set(CURLOPT_XFERINFODATA, static_cast<void*>(&call));
  set(CURLOPT_CUSTOMREQUEST, method);
  if (body != nullptr) {
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body->size()));
    set(CURLOPT_POSTFIELDS, body->c_str());
  }
  const CURLcode code = ::curl_easy_perform(curl);
  long status = 0;
  ::curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  if (code == CURLE_OK) give_back(std::move(handle));  // others have no connection to keep
  const std::string why = base::printable(
      reason[0] != '\0' ? static_cast<const char*>(reason) : ::curl_easy_strerror(code),
      kMostOfMessage);
  if (call.enough) return {};
  if (call.too_large) return base::fail(EPROTO, "the API server's answer is larger than 4 MiB");
  if (code == CURLE_ABORTED_BY_CALLBACK)
    return base::fail(ECANCELED, "the API server is not asked any more");
  if (code == CURLE_OPERATION_TIMEDOUT)
    return base::fail(ETIMEDOUT, "the API server " + places_.url + " does not answer: " + why);
  if (code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST)
    return base::fail(EHOSTUNREACH, "the API server cannot be reached: " + why);
  if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
    return base::fail(
        EACCES, "the API server " + places_.url + " is not that of " + authority + ": " + why);
  if (code != CURLE_OK)
    return base::fail(EPROTO, "the API server " + places_.url + " breaks the connection: " + why);
  if (status >= 200 && status < 300) return {};
  return base::fail(errno_of(status), "the API server answers " + std::to_string(status) + " to " +
                                          method + " " + path.substr(0, path.find('?')) +
                                          message_of(call.body));
}

base::Result<std::string> ApiServer::ask(const char* method, const std::string& path,
                                         const std::string* body) {
  Call call{*this};
  if (auto done = perform(call, method, path, body, kSeconds); !done)
    return base::pass(std::move(done).error());
  return std::move(call.body);
}

base::Result<std::string> ApiServer::get(const std::string& path) {
  return ask("GET", path, nullptr);
}
base::Result<std::string> ApiServer::post(const std::string& path, const std::string& body) {
  return ask("POST", path, &body);
}
base::Result<std::string> ApiServer::put(const std::string& path, const std::string& body) {
  return ask("PUT", path, &body);
}
base::Result<void> ApiServer::remove(const std::string& path) {
  const auto removed = ask("DELETE", path, nullptr);
  if (removed || removed.error().code() == ENOENT) return {};
  return base::pass(removed.error());
}

base::Result<void> ApiServer::watch(const std::string& path, int seconds, const OnLine& on_line,
                                    const std::function<bool()>& go_on) {
  Call call{*this};
  call.on_line = &on_line;
  call.go_on = &go_on;
  return perform(call, "GET", path, nullptr, seconds);
}

}  // namespace vrdma::cli::kubernetes
