// Limits the rate of requests from the sessions of one vdevice, or from one user of rdma_cm.
//
// A session without budget for its next request joins a queue and does not read its socket
// meanwhile: the program's messages wait in the socket. When there is budget again, as many
// sessions as it covers are called and may read one request each.
//
// Single-threaded, on the thread of its loop.
#pragma once

#include <list>
#include <memory>

#include "core/base/counter.h"
#include "core/base/event_loop.h"
#include "core/base/token_bucket.h"

namespace vrdma::provisioning {

// What it shows. The thread of the rate writes it, any thread reads it.
struct RequestUse {
  base::Counter full_at;  // nanoseconds of the clock: when nothing is used any more
  base::Counter waited;   // how often a reader had to wait
  // Requests over about the last second under a limit of `rate`; 0: unlimited, nothing is counted.
  [[nodiscard]] uint64_t used(base::TimePoint now, uint64_t rate) const;
};

class RequestRate {
 public:
  class Reader {
   public:
    virtual ~Reader() = default;
    // May call admits() again, but must not destroy the reader.
    virtual void admitted() = 0;

   private:
    friend class RequestRate;
    bool paid_ = false;  // admitted to its next request
    bool in_line_ = false;
    std::list<Reader*>::iterator place_;
  };

  explicit RequestRate(base::EventLoop& loop,
                       std::shared_ptr<RequestUse> shown = std::make_shared<RequestUse>())
      : loop_(loop), shown_(std::move(shown)) {}
  RequestRate(const RequestRate&) = delete;
  RequestRate& operator=(const RequestRate&) = delete;

  // Requests per second, and as many at once; 0: unlimited.
  void set(uint64_t rate);
  // Whether the reader may read one request now. If not, admitted() is called later.
  [[nodiscard]] bool admits(Reader& reader);
  // The reader has read the request to which it was admitted. Until then it stays admitted.
  static void has_read(Reader& reader) { reader.paid_ = false; }
  [[nodiscard]] static bool waits(const Reader& reader) { return reader.in_line_; }
  // Must be called before the reader is destroyed.
  void leave(Reader& reader);

  // As RequestUse::used(), on the thread of the rate.
  [[nodiscard]] uint64_t used() { return bucket_.used(loop_.now()); }
  [[nodiscard]] const RequestUse& use() const { return *shown_; }

 private:
  void spend_one(base::TimePoint now);
  void show(base::TimePoint now);
  void wake_in(base::Duration delay);
  void call_next();

  base::EventLoop& loop_;
  base::TokenBucket bucket_;
  std::list<Reader*> line_;
  base::EventLoop::Timer timer_;  // active while readers wait
  const std::shared_ptr<RequestUse> shown_;
};

}  // namespace vrdma::provisioning
