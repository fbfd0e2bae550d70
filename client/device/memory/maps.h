// The mappings in a range of this process's memory (/proc/self/maps, proc(5)).
#pragma once

#include <cstdint>
#include <vector>

namespace vrdma::client {

struct Mapped {
  uint64_t start = 0, end = 0;  // cut to the requested range
  int prot = 0;
  bool shared = false;
  bool anonymous = false;        // private, without a file, not a special mapping
  bool asynchronous_io = false;  // a ring of io_setup(2)
  uint64_t inode = 0;
  uint64_t offset = 0;  // in the file, of `start`
  bool holds(uint64_t address) const { return whole_start <= address && address < whole_end; }
  uint64_t whole_start = 0, whole_end = 0;  // the whole mapping
};

// The mappings that overlap [start, end), in order. False if the kernel does not report them.
[[nodiscard]] bool read_mappings(uint64_t start, uint64_t end, std::vector<Mapped>* mapped);

// The same, passed to `see` one by one. Writes only to the stack. `see` may change the mappings; it
// may then see some again.
using SeeMapped = void (*)(const Mapped& mapped, void* with);
[[nodiscard]] bool visit_mappings(uint64_t start, uint64_t end, SeeMapped see, void* with);
// The same for all shared mappings of files of the process, without a look at the others where the
// kernel permits it; `see` may see others too.
[[nodiscard]] bool visit_shared_files(SeeMapped see, void* with);

// False if `one`, which maps a memory arena, is a window of the library on the memory of a peer in
// this process (core/rdma/address_space.h); only the program's own memory is watched by
// userfaultfd(2). Writes only to the stack.
[[nodiscard]] bool is_memory_of_program(const Mapped& one);

// The two implementations. The first queries one mapping at a time, independent of the number of
// mappings (PROCMAP_QUERY, Linux 6.11); false if the kernel lacks it. The second reads the file up
// to `end`.
[[nodiscard]] bool query_mappings(uint64_t start, uint64_t end, SeeMapped see, void* with);
[[nodiscard]] bool parse_mappings(uint64_t start, uint64_t end, SeeMapped see, void* with);

}  // namespace vrdma::client
