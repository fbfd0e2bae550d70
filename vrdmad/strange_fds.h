// Descriptors that strangers sent.
//
// Their last close takes as long as their sender likes (a socket that lingers, a file of a FUSE
// server that does not answer), so a thread of its own does it, on whatever way they are left. The
// same holds for a socket with messages that were not read: there may be descriptors beside them.
#pragma once

#include <vector>

#include "core/base/fd.h"

namespace vrdma::vrdmad {

// Whoever takes one out has seen that it is his own, or closes it elsewhere.
class StrangeFds : public std::vector<base::Fd> {
 public:
  StrangeFds() = default;
  StrangeFds(StrangeFds&&) noexcept = default;
  StrangeFds& operator=(StrangeFds&&) = delete;
  StrangeFds(const StrangeFds&) = delete;
  StrangeFds& operator=(const StrangeFds&) = delete;
  ~StrangeFds();
};

// A connected socket whose other end is a stranger's.
void close_connection(base::Fd socket);

}  // namespace vrdma::vrdmad
