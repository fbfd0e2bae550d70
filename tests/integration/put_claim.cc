// put_claim RUN_DIR UID NAMESPACE/NAME SHARE=CLASS[:KIND=LIMIT]...: puts a claim, as a driver of
// Kubernetes does, and prints its uid when vrdmad has answered. With the uid "*" it puts one claim
// after another, until there is no answer.
#include <cstdlib>
#include <iostream>
#include <string>

#include "api/client.h"

namespace {

using namespace vrdma;  // NOLINT(google-build-using-namespace): a test program

// The text before the first `mark`, which is cut off `text` with it.
std::string cut(std::string& text, char mark) {
  const size_t end = text.find(mark);
  std::string before = text.substr(0, end);
  text = end == std::string::npos ? "" : text.substr(end + 1);
  return before;
}

int put(api::Client& client, const v1::Claim& claim) {
  const auto done = client.put_claim(claim);
  if (!done) std::cerr << done.error().message() << '\n';
  if (done) std::cout << done->uid() << std::endl;
  return done ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  auto client = api::Client::connect(argv[1]);
  if (!client) {
    std::cerr << client.error().message() << '\n';
    return 1;
  }
  v1::Claim claim;
  claim.set_uid(argv[2]);
  std::string name = argv[3];
  claim.set_namespace_(cut(name, '/'));
  claim.set_name(name);
  for (int i = 4; i < argc; ++i) {
    std::string text = argv[i];
    auto& share = *claim.add_shares();
    share.set_id(cut(text, '='));
    share.set_class_(cut(text, ':'));
    if (text.empty()) continue;
    auto& limit = *share.add_quota();
    limit.set_kind(cut(text, '='));
    limit.set_limit(std::strtoull(text.c_str(), nullptr, 10));
  }
  if (claim.uid() != "*") return put(*client, claim);
  for (int i = 0;; ++i) {
    claim.set_uid("many-" + std::to_string(i));
    if (put(*client, claim) != 0) return 0;
  }
}
