// A connection over which two test programs tell each other what they need.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

class Talk {
 public:
  // The one without a `peer` listens at `address`, and prints "listening".
  Talk(const char* address, const char* peer, uint16_t port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    ::inet_pton(AF_INET, peer != nullptr ? peer : address, &at.sin_addr);
    const auto* const name = reinterpret_cast<const sockaddr*>(&at);
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    const int on = 1;
    if (peer == nullptr) {
      ::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      if (::bind(fd_, name, sizeof at) != 0 || ::listen(fd_, 1) != 0) fail("listen");
      std::puts("listening");
      std::fflush(stdout);
      fd_ = ::accept(fd_, nullptr, nullptr);
    } else if (::connect(fd_, name, sizeof at) != 0) {
      fail("connect");
    }
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  template <class T>
  void put(const T& value) const {
    if (::send(fd_, &value, sizeof value, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof value))
      fail("the other program has gone");
  }
  template <class T>
  [[nodiscard]] T get() const {
    T value{};
    if (::recv(fd_, &value, sizeof value, MSG_WAITALL) != static_cast<ssize_t>(sizeof value))
      fail("the other program has gone");
    return value;
  }
  template <class T>
  [[nodiscard]] T exchange(const T& mine) const {
    put(mine);
    return get<T>();
  }
  // Both come here.
  void meet() const { (void)exchange('.'); }

 private:
  [[noreturn]] static void fail(const char* what) {
    std::fprintf(stderr, "FAILED: %s\n", what);
    std::_Exit(1);
  }

  int fd_;
};
