// The header is read first, and then exactly the message: a read never has bytes of two messages,
// so the descriptors that the kernel hands out with it belong to this message.
#include "pvrdma/vfio_user/connection.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace vrdma::pvrdma::vfio {

namespace {

// A write to a full eventfd, or the end of a socket with unsent data, would wait for as long as the
// VMM likes.
void keep_from_waiting(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags >= 0) (void)::fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  const linger none{};
  (void)::setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);  // not of others
}

void take_descriptors(const msghdr& message, std::vector<base::Fd>* to) {
  for (const cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(const_cast<msghdr*>(&message), const_cast<cmsghdr*>(part))) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      keep_from_waiting(fd);
      to->emplace_back(fd);
    }
  }
}

}  // namespace

std::string Connection::objection() const {
  const Header& header = request_.header;
  if ((header.flags & kTypeMask) != kCommandType)
    return "the VMM answers a " + name_of(header.message) + " that it was not asked";
  if (header.size < sizeof header || header.size > kMostBytes)
    return "the VMM sends a " + name_of(header.message) + " of " + std::to_string(header.size) +
           " bytes, and a message has " + std::to_string(sizeof header) + " to " +
           std::to_string(kMostBytes);
  return {};
}

// An option of the socket that the process before may have left.
Connection::Connection(base::Fd socket) : socket_(std::move(socket)) {
  offset_ = 0;
  look_from(-1);
}

void Connection::look_from(int offset) {
  if (offset_ == offset) return;
  (void)::setsockopt(socket_.get(), SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof offset);
  offset_ = offset;
}

base::Result<size_t> Connection::look(std::span<iovec> parts, msghdr* message, size_t* at) {
  look_from(*at == 0 ? -1 : static_cast<int>(*at));
  message->msg_iov = parts.data();
  message->msg_iovlen = parts.size();
  const ssize_t count =
      ::recvmsg(socket_.get(), message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  // ECONNRESET: it has gone without reading all answers.
  if (count < 0 && errno != ECONNRESET) return base::fail_errno("receive from the VMM");
  if (count <= 0)
    return base::fail(ECONNRESET, header_seen_ == 0 ? "" : "the VMM has gone within a message");
  *at += static_cast<size_t>(count);
  if (offset_ >= 0) offset_ += static_cast<int>(count);
  return static_cast<size_t>(count);
}

base::Result<bool> Connection::receive(int& reads) {
  Header& header = request_.header;
  if (header_seen_ == 0) request_.descriptors.clear();
  while (header_seen_ < sizeof header) {
    if (reads-- <= 0) return false;
    iovec part{reinterpret_cast<uint8_t*>(&header) + header_seen_, sizeof header - header_seen_};
    msghdr message{};
    const auto count = look({&part, 1}, &message, &header_seen_);
    if (!count) return base::pass(count.error());
    if (*count == 0) return false;
    if (header_seen_ < sizeof header) continue;
    if (std::string why = objection(); !why.empty()) return base::fail(EPROTO, std::move(why));
    request_.payload.resize(header.size - sizeof header);
    seen_ = 0;
  }
  // Descriptors come with each look at the bytes that they were sent with, so all of the request is
  // looked at once more, and each byte once. A look that has found its bytes goes on to the next
  // descriptors, also of a later message, and ends there: one more byte tells them apart.
  while (seen_ < header.size) {
    if (reads-- <= 0) return false;
    Header again;
    uint8_t next = 0;
    std::array<iovec, 3> parts{};
    const size_t in_header = std::min(seen_, sizeof again);
    parts[0] = {reinterpret_cast<uint8_t*>(&again) + in_header, sizeof again - in_header};
    parts[1] = {request_.payload.data() + (seen_ - in_header),
                header.size - std::max(seen_, sizeof again)};
    parts[2] = {&next, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(kMostFds * sizeof(int))];
    msghdr message{};
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const auto count = look(parts, &message, &seen_);
    if (!count) return base::pass(count.error());
    if (*count == 0) return false;
    if (seen_ > header.size) {
      std::vector<base::Fd> of_another;
      take_descriptors(message, &of_another);
      break;
    }
    take_descriptors(message, &request_.descriptors);
    const std::string with = "a " + name_of(header.message);
    if (request_.descriptors.size() > kMostFds)
      return base::fail(EPROTO, "the VMM sends more than " + std::to_string(kMostFds) +
                                    " descriptors with " + with);
    // The kernel has closed those that found no room: in `control`, or in the table of descriptors.
    if ((message.msg_flags & MSG_CTRUNC) != 0)
      return base::fail(EPROTO, "the VMM sends more descriptors with " + with +
                                    " than the protocol or this process may have");
  }
  return true;
}

uint8_t Connection::last_byte() const {
  if (!request_.payload.empty()) return request_.payload.back();
  return reinterpret_cast<const uint8_t*>(&request_.header)[sizeof(Header) - 1];
}

bool Connection::begins_with(const Header& header) {
  Header found{};
  return ::recv(socket_.get(), &found, sizeof found, MSG_PEEK | MSG_DONTWAIT) == sizeof found &&
         std::memcmp(&found, &header, sizeof found) == 0;
}

base::Result<void> Connection::take(uint32_t size, uint8_t* last) {
  look_from(-1);
  header_seen_ = 0;
  taken_.resize(size);
  // In one call, if descriptors came with its first bytes at the latest.
  for (size_t taken = 0; taken < size;) {
    iovec parts[2] = {{taken_.data() + taken, size - 1 - taken}, {last, 1}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t count = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return base::fail_errno("take a message of the VMM");
    if (count == 0) return base::fail(ECONNRESET, "the VMM has gone within a message");
    taken += static_cast<size_t>(count);
  }
  return {};
}

base::Result<void> Connection::send_some(const std::vector<uint8_t>& bytes, const base::Fd* file,
                                         size_t& sent) {
  while (sent < bytes.size()) {
    iovec part{const_cast<uint8_t*>(bytes.data()) + sent, bytes.size() - sent};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (file != nullptr && sent == 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* const rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int));
      const int fd = file->get();
      std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    }
    const ssize_t count = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && errno == EAGAIN) return {};
    if (count < 0 && errno == EINTR) continue;
    // EPIPE, ECONNRESET: it has gone.
    if (count < 0 && (errno == EPIPE || errno == ECONNRESET)) return base::fail(ECONNRESET, "");
    if (count < 0) return base::fail_errno("answer the VMM");
    sent += static_cast<size_t>(count);
  }
  return {};
}

base::Result<void> Connection::send(std::vector<uint8_t>& bytes, const base::Fd* file) {
  size_t sent = 0;
  if (auto done = send_some(bytes, file, sent); !done) return done;
  if (sent < bytes.size()) unsent_ = Answer{std::move(bytes), file, sent};
  return {};
}

base::Result<void> Connection::flush() {
  if (!unsent_) return {};
  if (auto done = send_some(unsent_->bytes, unsent_->file, unsent_->sent); !done) return done;
  if (unsent_->sent == unsent_->bytes.size()) unsent_.reset();
  return {};
}

}  // namespace vrdma::pvrdma::vfio
