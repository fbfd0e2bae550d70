// What the kernel says of a range of this process's memory (/proc/self/maps, proc(5)).
#pragma once

#include <cstdint>
#include <vector>

namespace vrdma::client {

struct Mapped {
  uint64_t start = 0, end = 0;  // cut to the range asked for
  int prot = 0;
  bool shared = false;
  bool anonymous = false;  // private memory of no file, no special page
  uint64_t inode = 0;
  uint64_t offset = 0;  // in the file, at `start`
  bool holds(uint64_t address) const { return whole_start <= address && address < whole_end; }
  uint64_t whole_start = 0, whole_end = 0;  // of the mapping
};

// The mappings that overlap [start, end), in order. False if the kernel does not tell.
[[nodiscard]] bool read_mappings(uint64_t start, uint64_t end, std::vector<Mapped>* mapped);

// The same, shown to `see` one after the other. Writes to nothing but the stack; `see` may change
// the mappings, and may be shown some again.
using SeeMapped = void (*)(const Mapped& mapped, void* with);
[[nodiscard]] bool visit_mappings(uint64_t start, uint64_t end, SeeMapped see, void* with);

// Its two ways. The first asks for one mapping after the other, whatever else the process has
// mapped (PROCMAP_QUERY, Linux 6.11); false where the kernel does not know that. The second reads
// all of the file up to `end`.
[[nodiscard]] bool query_mappings(uint64_t start, uint64_t end, SeeMapped see, void* with);
[[nodiscard]] bool parse_mappings(uint64_t start, uint64_t end, SeeMapped see, void* with);

}  // namespace vrdma::client
