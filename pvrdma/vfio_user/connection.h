// One end of a vfio-user connection: whole messages with their descriptors arrive, answers leave.
//
// A SOCK_STREAM socket. Nothing here waits for the VMM: a message may arrive in pieces, and answers
// that the socket does not take are kept, up to kMostUnsent. Descriptors belong to the message
// whose bytes they came with.
//
// One thread.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/fd.h"
#include "pvrdma/vfio_user/messages.h"

namespace vrdma::pvrdma::vfio {

class Connection {
 public:
  // A VMM may send some requests without waiting, as QEMU does when its memory changes. One that
  // has so many answers outstanding, beside those in the socket, does not read them.
  static constexpr size_t kMostUnsent = 1024;

  struct Request {
    Header header{};
    std::vector<uint8_t> payload;       // header.size - 16 bytes
    std::vector<base::Fd> descriptors;  // at most kMostFds
  };

  explicit Connection(base::Fd socket) : socket_(std::move(socket)) {}
  [[nodiscard]] int fd() const { return socket_.get(); }

  // Whether a request is complete; false: what it lacks has not arrived. An error means that the
  // connection is of no use any more; the sentence is empty if the VMM has closed it between two
  // messages.
  // `reads` bounds the system calls, and is counted down. None left: false.
  [[nodiscard]] base::Result<bool> receive(int& reads);
  // The request, until the next receive().
  [[nodiscard]] const Request& request() const { return request_; }
  // Its descriptors, which may be taken out.
  [[nodiscard]] std::vector<base::Fd>& descriptors() { return request_.descriptors; }

  // `bytes`: a whole answer; used up. `file`: goes with it, unless nullptr, and must outlive the
  // connection.
  [[nodiscard]] base::Result<void> send(std::vector<uint8_t>& bytes, const base::Fd* file);
  // Sends what waits. To be called when the socket takes more.
  [[nodiscard]] base::Result<void> flush();
  [[nodiscard]] bool has_unsent() const { return !unsent_.empty(); }

 private:
  struct Answer {
    std::vector<uint8_t> bytes;
    const base::Fd* file = nullptr;
    size_t sent = 0;
  };
  void take_descriptors(const msghdr& message);
  // Empty: the header is that of a request.
  [[nodiscard]] std::string objection() const;
  // As much of it as the socket takes.
  [[nodiscard]] base::Result<void> send_some(const std::vector<uint8_t>& bytes,
                                             const base::Fd* file, size_t& sent);

  base::Fd socket_;
  Request request_;
  size_t received_ = 0;  // bytes of it, with the header
  std::deque<Answer> unsent_;
};

}  // namespace vrdma::pvrdma::vfio
