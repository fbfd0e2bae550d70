// What the test's worker program is told over its descriptor 3, and what it says.
//
// A message of the size of broker::Request is sent on to the broker over descriptor 4, and the
// answer comes back with the descriptors beside it. A message of one byte is an order:
#pragma once

#include <array>
#include <cstdint>

namespace vrdma::vrdmad::worker_program {

enum Order : char {
  kReport = 'R',    // -> Report
  kNonsense = 'N',  // send half a request to the broker -> 1 byte: 1 if it ends the channel
  kBeside = 'B',    // send a descriptor beside a request -> the same
  kConfine = 'C',   // confine_worker() -> 1 byte: 1 if it is confined; 0 without libseccomp.a
  kWork = 'W',      // use what a worker needs -> 1 byte: 1 if all of it succeeds
  kOpen = 'O',      // open the root -> 1 byte: 1 if that succeeds
  kEnd = 'E',       // end
};

struct Report {
  std::array<uint32_t, 3> uids{}, gids{};  // real, effective, saved
  int32_t groups = 0;
  uint64_t permitted = 0, effective = 0, inheritable = 0, bounds = 0;  // capabilities
  int32_t no_new_privs = 0, death_signal = 0;
  int32_t root_entries = -1;                          // but . and ..
  int32_t at_root = 0;                                // 1: the working directory is the root
  uint64_t netns_cookie = 0, descriptors = 0;         // bit: number, below 64
  uint64_t core_limit = 1, blocked = 0, ignored = 0;  // bit: number of the signal
  int32_t arguments = 0, variables = 0;
  std::array<char, 32> name{};  // arguments[0]
};

}  // namespace vrdma::vrdmad::worker_program
