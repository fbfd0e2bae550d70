// Pages of a program that lie in memory files of others, such as the memory of a virtual machine,
// and that a worker may map itself: which page lies where.
//
// The program shows the worker the files and a page table (Call::kShowMemory), itself a memory
// file. It has an entry for each page of the program's address space, so it is sparse. The program
// writes it at any time; the worker reads an entry once for each use, and what is in no file of the
// session is nowhere. So a wrong entry harms only the program that wrote it, or whose memory the
// files are.
#pragma once

#include <cstdint>

#include "core/ipc/layout.h"

namespace vrdma::ipc {

constexpr uint64_t kShownPage = 4096;                    // bytes
constexpr uint32_t kMostShownFiles = 7;                  // beside the table in one message: kMaxFds
constexpr uint64_t kMostShownBytes = uint64_t{1} << 40;  // of all files of a session

// 0: the page lies in none of them. Else the number of the file, from 1 on, in the highest 3 bits,
// and the number of its page.
using PageEntry = uint32_t;
constexpr unsigned kPageBits = 29;
static_assert(kMostShownFiles < 1u << (32 - kPageBits));
static_assert(kMostShownBytes / kShownPage <= 1u << kPageBits);
[[nodiscard]] constexpr PageEntry page_entry(uint32_t file, uint64_t page) {
  return (file + 1) << kPageBits | static_cast<uint32_t>(page);
}

constexpr uint64_t kPageTableSize = kMemoryArenaSize / kShownPage * sizeof(PageEntry);

}  // namespace vrdma::ipc
