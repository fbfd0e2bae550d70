// The attacks: each is a function that runs in a process of its own, and ends it by failed() when
// the daemon did not do what it must.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace vrdma::hostile {

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  uint32_t operator()() { return static_cast<uint32_t>(engine_()); }

 private:
  std::mt19937 engine_;
};

struct Target {
  std::string socket;  // the session socket of the attacker's vdevice
  uint32_t seed = 0;
};

struct Attack {
  const char* name;
  void (*run)(const Target& target);
  bool tedious = false;  // a hundred thousand calls of one kind, until a bound
};

std::vector<Attack> message_attacks();     // what is said
std::vector<Attack> descriptor_attacks();  // what comes beside it
std::vector<Attack> raw_attacks();         // raw packets
std::vector<Attack> ring_attacks();        // what stands in shared memory
std::vector<Attack> connection_attacks();  // what is said at the rdma_cm socket
std::vector<Attack> memory_attacks();      // keys, and memory that does not answer
std::vector<Attack> object_attacks();      // objects and their lives
std::vector<Attack> stranger_attacks();    // what is another's
std::vector<Attack> race_attacks();        // two things at once
std::vector<Attack> process_attacks();     // what a process does to itself
std::vector<Attack> hold_attacks();        // threads that are to stand still

// A file in a FUSE file system of a server that answers nothing more once `silence` was called.
// Empty path: FUSE cannot be had here. To be made before anything else of the process.
struct SilentFile {
  std::string path;
  int* silent = nullptr;
  int server = 0;  // process id; to be killed before the file is closed by whom it would hang
  void silence() const { __atomic_store_n(silent, 1, __ATOMIC_RELEASE); }
};
SilentFile make_silent_file(bool reads = false);

}  // namespace vrdma::hostile
