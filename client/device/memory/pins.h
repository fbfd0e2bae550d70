// What else in this process may have pinned pages, or watch them.
//
// Converting memory replaces its pages. What has pinned the old ones (get_user_pages(9)) goes on to
// use those: reads of io_uring's fixed buffers would not arrive, and old bytes would go to disk. A
// process cannot see pins, so it looks for what makes them.
#pragma once

#include <initializer_list>

namespace vrdma::client {

// True if the process has a descriptor or mapping of io_uring, of asynchronous I/O (io_setup(2)),
// of AF_XDP, of VFIO or of a GPU, or a userfaultfd(2) of its own. Takes about a microsecond for
// each descriptor, of which `own` do not count. Looked at before each conversion: what pins pages
// later pins the new ones.
[[nodiscard]] bool may_have_pinned_pages(std::initializer_list<int> own);

}  // namespace vrdma::client
