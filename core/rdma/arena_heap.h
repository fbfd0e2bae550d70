// Where blocks and rings stand in a session's queue arena, and claims in its bell file.
//
// Hands out page-aligned ranges of a part of the file. A freed range is punched out of the file, so
// that a destroyed queue pair costs no memory; but up to kKept bytes of small ones stay for the
// next that want as much, since to take pages and give them back costs more than to wipe them.
// Owned by one thread.
//
// The program has the file too. By writing to it from a page that never comes it can hold the lock
// of the inode for as long as it likes, and fallocate(2), pwrite(2) and fstat(2) wait for that. So
// here it is only mapped; holes are punched by threads that may hang, and what they have not
// punched yet is not given out again.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "core/base/fd.h"
#include "core/rdma/reach_threads.h"

namespace vrdma::rdma {

class ArenaHeap : public std::enable_shared_from_this<ArenaHeap> {
 public:
  static constexpr uint64_t kKept = 512u << 10;

  // A range that goes back when its owner goes. Holds the heap, so it may outlive the session.
  class Range {
   public:
    Range() = default;
    Range(Range&& other) noexcept { *this = std::move(other); }
    Range& operator=(Range&& other) noexcept;
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;
    ~Range() { reset(); }
    void reset();
    [[nodiscard]] uint64_t offset() const { return offset_; }
    [[nodiscard]] uint64_t size() const { return size_; }

   private:
    friend class ArenaHeap;
    std::shared_ptr<ArenaHeap> heap_;
    uint64_t offset_ = 0;
    uint64_t size_ = 0;
  };

  // The part [begin, end) of the memory file `arena`, which is mapped as a whole at `bytes` as long
  // as something is allocated; the heap keeps it open. No `threads`: nobody else has the file.
  ArenaHeap(base::Fd arena, uint8_t* bytes, uint64_t begin, uint64_t end,
            std::shared_ptr<ReachThreads> threads);
  ~ArenaHeap();
  ArenaHeap(const ArenaHeap&) = delete;
  ArenaHeap& operator=(const ArenaHeap&) = delete;

  // At least `size` bytes, zero. ENOMEM when the part is full.
  [[nodiscard]] base::Result<Range> allocate(uint64_t size);
  // This very place, with what stands there; EEXIST if some of it is taken. At 0: anywhere.
  [[nodiscard]] base::Result<Range> allocate(uint64_t size, uint64_t at);
  // After allocations at places of their own: what is free may hold what a heap before this one
  // left there, and is made zero when it is allocated.
  void wipe() { wipes_ = true; }
  // `arena` has the content of the file so far, and is mapped in its place.
  void exchange(base::Fd arena);
  // Whatever is freed from now on stays as it is: it is another's.
  void leave() { left_ = true; }

 private:
  struct Holes;

  void free(uint64_t offset, uint64_t size);

  // A kept range of that very size, wiped; 0: there is none.
  [[nodiscard]] uint64_t reuse(uint64_t size);
  void wipe(uint64_t offset, uint64_t size);
  // Nothing is kept any more.
  void punch_all();
  void punch(uint64_t offset, uint64_t size);
  // What has been punched is free.
  void collect();

  uint8_t* const bytes_;
  const std::shared_ptr<ReachThreads> threads_;
  const std::shared_ptr<Holes> holes_;
  std::map<uint64_t, uint64_t> free_;       // offset -> size, neighbours joined
  std::multimap<uint64_t, uint64_t> kept_;  // size -> offset
  uint64_t kept_bytes_ = 0;
  bool left_ = false;   // see leave()
  bool wipes_ = false;  // see wipe()
};

}  // namespace vrdma::rdma
