// Verbs are no cancellation points (pthreads(7)): a thread that is cancelled between a request and
// its reply would leave the reply to the next request, and one that is cancelled in a destructor
// would end the process. Only calls that wait for events, or on a socket over RDMA, end with their
// thread.
#pragma once

#include <pthread.h>

namespace vrdma::client {

// While it exists, a cancellation of this thread stays pending.
class Uncancelled {
 public:
  Uncancelled() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~Uncancelled() { ::pthread_setcancelstate(before_, nullptr); }
  Uncancelled(const Uncancelled&) = delete;
  Uncancelled& operator=(const Uncancelled&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace vrdma::client
