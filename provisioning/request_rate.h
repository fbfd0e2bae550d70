// How many requests a second are read from the sessions of one vdevice, or of one user at rdma_cm.
//
// A session for whose next request there is nothing to spend stands in a line, and its socket is
// not read meanwhile: what the program sends waits in its own socket. When there is something
// again, as many are called as it does for, and have the right to one request each.
//
// Belongs to one thread, whose loop it uses.
#pragma once

#include <list>

#include "core/base/event_loop.h"
#include "core/base/token_bucket.h"

namespace vrdma::provisioning {

class RequestRate {
 public:
  class Reader {
   public:
    virtual ~Reader() = default;
    // It may ask again; may not destroy the reader.
    virtual void admitted() = 0;

   private:
    friend class RequestRate;
    bool paid_ = false;  // for the next request
    bool in_line_ = false;
    std::list<Reader*>::iterator place_;
  };

  explicit RequestRate(base::EventLoop& loop) : loop_(loop) {}
  RequestRate(const RequestRate&) = delete;
  RequestRate& operator=(const RequestRate&) = delete;

  // Requests a second, and as many at once; 0: any number.
  void set(uint64_t rate);
  // Whether the reader may read one request now. If not, admitted() is called later.
  [[nodiscard]] bool admits(Reader& reader);
  // It has read one that it was admitted to. Otherwise that right stays.
  static void has_read(Reader& reader) { reader.paid_ = false; }
  [[nodiscard]] static bool waits(const Reader& reader) { return reader.in_line_; }
  // Before it is destroyed.
  void leave(Reader& reader);

  // In about the last second; of a rate that is limited.
  [[nodiscard]] uint64_t used();
  // How often a reader had to wait.
  [[nodiscard]] uint64_t waited() const { return waited_; }

 private:
  void wake_in(base::Duration delay);
  void call_next();

  base::EventLoop& loop_;
  base::TokenBucket bucket_;
  std::list<Reader*> line_;
  base::EventLoop::Timer timer_;  // while there is a line
  uint64_t waited_ = 0;
};

}  // namespace vrdma::provisioning
