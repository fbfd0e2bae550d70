// The header is read first, and then exactly the rest: a read never takes bytes of two messages, so
// the descriptors that the kernel hands out with it belong to this message.
#include "pvrdma/vfio_user/connection.h"

#include <fcntl.h>

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

}  // namespace

void Connection::take_descriptors(const msghdr& message) {
  for (const cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(const_cast<msghdr*>(&message), const_cast<cmsghdr*>(part))) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      keep_from_waiting(fd);
      request_.descriptors.emplace_back(fd);
    }
  }
}

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

base::Result<bool> Connection::receive(int& reads) {
  Header& header = request_.header;
  if (received_ == 0) request_.descriptors.clear();
  while (received_ < sizeof header || received_ < header.size) {
    if (reads-- <= 0) return false;
    const bool in_header = received_ < sizeof header;
    iovec part{};
    if (in_header)
      part = {reinterpret_cast<uint8_t*>(&header) + received_, sizeof header - received_};
    else
      part = {request_.payload.data() + (received_ - sizeof header), header.size - received_};
    alignas(cmsghdr) char control[CMSG_SPACE(kMostFds * sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t count = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    // ECONNRESET: it has gone without reading all answers.
    if (count < 0 && errno != ECONNRESET) return base::fail_errno("receive from the VMM");
    if (count <= 0)
      return base::fail(ECONNRESET, received_ == 0 ? "" : "the VMM has gone within a message");
    take_descriptors(message);
    received_ += static_cast<size_t>(count);
    const std::string with =
        received_ < sizeof header ? "a message" : "a " + name_of(header.message);
    if (request_.descriptors.size() > kMostFds)
      return base::fail(EPROTO, "the VMM sends more than " + std::to_string(kMostFds) +
                                    " descriptors with " + with);
    // The kernel has closed those that found no room: in `control`, or in the table of descriptors.
    if ((message.msg_flags & MSG_CTRUNC) != 0)
      return base::fail(EPROTO, "the VMM sends more descriptors with " + with +
                                    " than the protocol or this process may have");
    if (in_header && received_ == sizeof header) {
      if (std::string why = objection(); !why.empty()) return base::fail(EPROTO, std::move(why));
      request_.payload.resize(header.size - sizeof header);
    }
  }
  received_ = 0;
  return true;
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
  if (unsent_.empty()) {
    if (auto done = send_some(bytes, file, sent); !done) return done;
    if (sent == bytes.size()) return {};
  }
  if (unsent_.size() >= kMostUnsent)
    return base::fail(ENOBUFS, "the VMM does not read its answers, of which " +
                                   std::to_string(kMostUnsent) + " wait");
  unsent_.push_back({std::move(bytes), file, sent});
  return {};
}

base::Result<void> Connection::flush() {
  while (!unsent_.empty()) {
    Answer& first = unsent_.front();
    if (auto done = send_some(first.bytes, first.file, first.sent); !done) return done;
    if (first.sent < first.bytes.size()) return {};
    unsent_.pop_front();
  }
  return {};
}

}  // namespace vrdma::pvrdma::vfio
