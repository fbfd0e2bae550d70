#include "tests/integrity/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <utility>

namespace integrity {
namespace {

constexpr size_t kStaticSize = 1u << 20;
alignas(64) uint8_t static_memory[4][kStaticSize];
std::array<bool, 4> static_taken{};

// Of .bss; nullptr if all is taken.
uint8_t* take_static() {
  for (size_t i = 0; i < static_taken.size(); ++i)
    if (!std::exchange(static_taken[i], true)) return static_memory[i];
  return nullptr;
}

uint8_t* map(size_t size, int flags, int file) {
  void* const made = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, file, 0);
  if (made == MAP_FAILED) fail("mmap of %zu bytes", size);
  if (file >= 0) ::close(file);
  return static_cast<uint8_t*>(made);
}

int make_file(size_t size) {
  const int file = ::memfd_create("integrity", 0);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(size)) != 0) fail("memfd_create");
  return file;
}

}  // namespace

Block::Block(Memory memory, size_t size) : memory_(memory) {
  uint8_t* at = nullptr;
  if (memory == Memory::kStatic && (size > kStaticSize || (at = take_static()) == nullptr))
    memory_ = Memory::kHeap;
  switch (memory_) {
    case Memory::kStatic:
      break;
    case Memory::kShared:
      at = map(size, MAP_SHARED, make_file(size));
      break;
    case Memory::kPrivateFile:
      at = map(size, MAP_PRIVATE, make_file(size));
      break;
    case Memory::kHeap:
      at = static_cast<uint8_t*>(std::malloc(size));
      if (at == nullptr) fail("malloc");
      break;
    default:
      at = map(size, MAP_PRIVATE | MAP_ANONYMOUS, -1);
      break;
  }
  bytes_ = {at, size};
}

Block::Block(Block&& other) noexcept
    : memory_(other.memory_), bytes_(std::exchange(other.bytes_, {})) {}

Block::~Block() {
  if (bytes_.empty()) return;
  if (memory_ == Memory::kHeap) {
    std::free(bytes_.data());
  } else if (memory_ == Memory::kStatic) {
    static_taken[static_cast<size_t>(bytes_.data() - &static_memory[0][0]) / kStaticSize] = false;
  } else {
    ::munmap(bytes_.data(), bytes_.size());
  }
}

}  // namespace integrity
