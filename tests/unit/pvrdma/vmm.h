// A VMM's end of a vfio-user connection, for any test program: messages as bytes, and the requests
// that a VMM makes. A request returns the errno of its answer, 0 for success and kNoAnswer if there
// is none; nothing here fails a test.
//
// The server may be in this thread: `turn` is called before an answer is looked for, and lets it
// work. Without `turn` an answer is waited for.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/fd.h"
#include "pvrdma/vfio_user/function.h"
#include "pvrdma/vfio_user/messages.h"

namespace vrdma::pvrdma {

class Vmm {
 public:
  using Bytes = std::vector<uint8_t>;
  static constexpr uint32_t kNoAnswer = UINT32_MAX;
  // What QEMU 11 proposes.
  static constexpr std::string_view kProposal =
      R"({"capabilities": {"pgsizes": 4096, "max_msg_fds": 16, "max_dma_maps": 65535, )"
      R"("max_data_xfer_size": 1048576, "migration": {"max_bitmap_size": 268435456, )"
      R"("pgsize": 4096}, "write_multiple": true}})";

  explicit Vmm(base::Fd connection, std::function<void()> turn = {})
      : connection_(std::move(connection)), turn_(std::move(turn)) {}

  // --- bytes

  template <class Body>
  static void append(Bytes& to, const Body& body) {
    const auto* const from = reinterpret_cast<const uint8_t*>(&body);
    to.insert(to.end(), from, from + sizeof body);
  }
  template <class... Bodies>
  [[nodiscard]] static Bytes bytes_of(const Bodies&... bodies) {
    Bytes all;
    (append(all, bodies), ...);
    return all;
  }
  [[nodiscard]] static Bytes with_text(const vfio::Version& version, std::string_view text) {
    Bytes all = bytes_of(version);
    all.insert(all.end(), text.begin(), text.end());
    all.push_back(0);
    return all;
  }
  [[nodiscard]] Bytes message(vfio::Message message, const Bytes& body, uint32_t flags = 0) {
    Bytes all =
        bytes_of(vfio::Header{++id_, static_cast<uint16_t>(message),
                              static_cast<uint32_t>(sizeof(vfio::Header) + body.size()), flags, 0});
    all.insert(all.end(), body.begin(), body.end());
    return all;
  }
  // The descriptors go with the first byte. Whether all was sent.
  bool send(std::span<const uint8_t> bytes, const std::vector<int>& descriptors = {}) {
    iovec part{const_cast<uint8_t*>(bytes.data()), bytes.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    std::vector<char> control(CMSG_SPACE(descriptors.size() * sizeof(int)));
    if (!descriptors.empty()) {
      header.msg_control = control.data();
      header.msg_controllen = control.size();
      cmsghdr* const rights = CMSG_FIRSTHDR(&header);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
      std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size() * sizeof(int));
    }
    return ::sendmsg(connection_.get(), &header, MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }

  struct Answer {
    vfio::Header header{};  // size 0: there is no answer
    Bytes body;
    base::Fd file;
    [[nodiscard]] uint32_t error() const { return header.size == 0 ? kNoAnswer : header.error; }
    // Zeros if it is shorter.
    template <class Body>
    [[nodiscard]] Body as(size_t at = 0) const {
      Body part{};
      if (at + sizeof part <= body.size()) std::memcpy(&part, body.data() + at, sizeof part);
      return part;
    }
  };
  [[nodiscard]] Answer receive() {
    if (turn_) turn_();
    Answer answer;
    const int wait = turn_ ? MSG_DONTWAIT : MSG_WAITALL;
    iovec part{&answer.header, sizeof answer.header};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    if (::recvmsg(connection_.get(), &header, wait | MSG_CMSG_CLOEXEC) != sizeof answer.header)
      return {};
    if (const cmsghdr* const rights = CMSG_FIRSTHDR(&header); rights != nullptr) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(rights), sizeof fd);
      answer.file = base::Fd(fd);
    }
    answer.body.resize(answer.header.size - sizeof answer.header);
    if (!answer.body.empty() && ::recv(connection_.get(), answer.body.data(), answer.body.size(),
                                       wait) != static_cast<ssize_t>(answer.body.size()))
      return {};
    return answer;
  }
  // The server has hung up, perhaps without having taken the last message.
  [[nodiscard]] bool is_over() {
    char byte = 0;
    const ssize_t count = ::recv(connection_.get(), &byte, 1, MSG_DONTWAIT);
    return count == 0 || (count < 0 && errno == ECONNRESET);
  }
  void hang_up() { connection_.reset(); }
  [[nodiscard]] uint16_t last_id() const { return id_; }

  // --- requests

  // An answer to another message is none.
  Answer ask(vfio::Message kind, const Bytes& body, const std::vector<int>& descriptors = {}) {
    if (!send(message(kind, body), descriptors)) return {};
    Answer answer = receive();
    if (answer.header.id != id_ || answer.header.message != static_cast<uint16_t>(kind)) return {};
    return answer;
  }
  uint32_t negotiate() {
    return ask(vfio::Message::kVersion, with_text({0, 0}, kProposal)).error();
  }
  uint32_t map(uint64_t address, uint64_t length, int file, uint64_t offset = 0,
               uint32_t flags = vfio::kMayRead | vfio::kMayWrite) {
    const vfio::DmaMap wish{sizeof wish, flags, offset, address, length};
    return ask(vfio::Message::kDmaMap, bytes_of(wish),
               file < 0 ? std::vector<int>{} : std::vector<int>{file})
        .error();
  }
  uint32_t unmap(uint64_t address, uint64_t length, uint32_t flags = 0) {
    const vfio::DmaUnmap wish{sizeof wish, flags, address, length};
    return ask(vfio::Message::kDmaUnmap, bytes_of(wish)).error();
  }
  template <class Value>
  [[nodiscard]] std::optional<Value> read(uint32_t region, uint64_t offset) {
    const vfio::RegionAccess access{offset, region, sizeof(Value)};
    const Answer answer = ask(vfio::Message::kRegionRead, bytes_of(access));
    if (answer.error() != 0 || answer.body.size() != sizeof access + sizeof(Value)) return {};
    return answer.as<Value>(sizeof access);
  }
  template <class Value>
  uint32_t write(uint32_t region, uint64_t offset, Value value) {
    const vfio::RegionAccess access{offset, region, sizeof value};
    return ask(vfio::Message::kRegionWrite, bytes_of(access, value)).error();
  }
  // Without an answer. Whether it was sent.
  template <class Value>
  bool post(uint32_t region, uint64_t offset, Value value) {
    const vfio::RegionAccess access{offset, region, sizeof value};
    return send(message(vfio::Message::kRegionWrite, bytes_of(access, value), vfio::kNoReply));
  }
  // No eventfds: vectors [start, start + count) get none.
  uint32_t assign(uint32_t start, uint32_t count, const std::vector<int>& eventfds) {
    const vfio::SetIrqs wish{sizeof wish, vfio::kDataEventfd | vfio::kTrigger, kMsix, start, count};
    return ask(vfio::Message::kSetIrqs, bytes_of(wish), eventfds).error();
  }
  uint32_t disable_vectors() {
    const vfio::SetIrqs wish{sizeof wish, vfio::kDataNone | vfio::kTrigger, kMsix, 0, 0};
    return ask(vfio::Message::kSetIrqs, bytes_of(wish)).error();
  }
  uint32_t reset() { return ask(vfio::Message::kReset, {}).error(); }

 private:
  base::Fd connection_;
  std::function<void()> turn_;
  uint16_t id_ = 41;
};

}  // namespace vrdma::pvrdma
