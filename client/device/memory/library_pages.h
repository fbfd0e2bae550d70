// Pages that the C library writes to in a child of fork(3) before the child's first handler runs:
// the state of each malloc arena but the main one, and the descriptors of all threads. In place
// they would still be the parent's (table.h), so they never are.
//
// An arena's state is at the beginning of its first heap, at a multiple of 64 MiB. A thread's
// descriptor contains the head of its list of robust futexes, which the kernel knows. The main
// thread's is in an anonymous mapping, in which a program's memory may lie too.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace vrdma::client {

class LibraryPages {
 public:
  // Finds the threads. Not again within a millisecond, because programs register many small ranges
  // in a row.
  void look();
  // Whether [start, end), which the program can read, has such a page.
  [[nodiscard]] bool meet(uint64_t start, uint64_t end) const;
  // Narrows [*start, *end) around [from, to), which has none, until it has none, nor variables of a
  // thread.
  void narrow(uint64_t* start, uint64_t* end, uint64_t from, uint64_t to) const;

 private:
  std::vector<uint64_t> heads_;  // of the robust lists
  std::chrono::steady_clock::time_point looked_;
};

}  // namespace vrdma::client
