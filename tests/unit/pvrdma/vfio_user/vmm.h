// A VMM's end of a vfio-user connection.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <span>
#include <vector>

#include "core/base/fd.h"
#include "pvrdma/vfio_user/messages.h"

namespace vrdma::pvrdma {

class Vmm {
 public:
  explicit Vmm(base::Fd connection) : connection_(std::move(connection)) {}

  template <class Body>
  [[nodiscard]] static std::vector<uint8_t> bytes_of(const Body& body) {
    const auto* const from = reinterpret_cast<const uint8_t*>(&body);
    return {from, from + sizeof body};
  }
  [[nodiscard]] std::vector<uint8_t> message(vfio::Message message, std::vector<uint8_t> body,
                                             uint32_t flags = 0) {
    const vfio::Header header{++id_, static_cast<uint16_t>(message),
                              static_cast<uint32_t>(sizeof(vfio::Header) + body.size()), flags, 0};
    std::vector<uint8_t> all = bytes_of(header);
    all.insert(all.end(), body.begin(), body.end());
    return all;
  }
  // The descriptors go with the first byte.
  void send(std::span<const uint8_t> bytes, const std::vector<int>& descriptors = {}) {
    iovec part{const_cast<uint8_t*>(bytes.data()), bytes.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    std::vector<char> control(CMSG_SPACE(descriptors.size() * sizeof(int)));
    if (!descriptors.empty()) {
      header.msg_control = control.data();
      header.msg_controllen = control.size();
      cmsghdr* const one = CMSG_FIRSTHDR(&header);
      one->cmsg_level = SOL_SOCKET;
      one->cmsg_type = SCM_RIGHTS;
      one->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
      std::memcpy(CMSG_DATA(one), descriptors.data(), descriptors.size() * sizeof(int));
    }
    ASSERT_EQ(static_cast<ssize_t>(bytes.size()),
              ::sendmsg(connection_.get(), &header, MSG_NOSIGNAL));
  }

  struct Answer {
    vfio::Header header{};
    std::vector<uint8_t> body;
    base::Fd file;
    template <class Body>
    [[nodiscard]] Body as(size_t at = 0) const {
      Body one{};
      EXPECT_LE(at + sizeof one, body.size());
      if (at + sizeof one <= body.size()) std::memcpy(&one, body.data() + at, sizeof one);
      return one;
    }
  };
  // What has come; the connection never waits. size 0: nothing, or the end.
  [[nodiscard]] Answer receive() {
    Answer answer;
    iovec part{&answer.header, sizeof answer.header};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    if (::recvmsg(connection_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) !=
        sizeof answer.header)
      return {};
    if (const cmsghdr* const one = CMSG_FIRSTHDR(&header); one != nullptr) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(one), sizeof fd);
      answer.file = base::Fd(fd);
    }
    answer.body.resize(answer.header.size - sizeof answer.header);
    if (!answer.body.empty()) {
      EXPECT_EQ(static_cast<ssize_t>(answer.body.size()),
                ::recv(connection_.get(), answer.body.data(), answer.body.size(), MSG_DONTWAIT));
    }
    return answer;
  }
  [[nodiscard]] bool is_over() {
    char byte = 0;
    return ::recv(connection_.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }
  void hang_up() { connection_.reset(); }
  [[nodiscard]] uint16_t last_id() const { return id_; }

 private:
  base::Fd connection_;
  uint16_t id_ = 41;
};

}  // namespace vrdma::pvrdma
