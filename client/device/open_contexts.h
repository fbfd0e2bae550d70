// The open contexts of this process.
#pragma once

#include <mutex>
#include <set>

namespace vrdma::client {

struct Context;

struct OpenContexts {
  std::mutex mutex;  // precedes that of MemoryTable, which precedes those of sessions
  std::set<Context*> contexts;
  static OpenContexts& instance();
};

}  // namespace vrdma::client
