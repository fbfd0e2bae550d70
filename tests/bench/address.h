// An IPv4 address from words. A word that is none ends the program with a sentence.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace vrdma::bench {

[[nodiscard]] inline sockaddr_in socket_address(const char* word, uint16_t port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  if (inet_pton(AF_INET, word, &to.sin_addr) == 1) return to;
  std::fprintf(stderr, "'%s' is no IPv4 address\n", word);
  std::exit(1);
}

}  // namespace vrdma::bench
