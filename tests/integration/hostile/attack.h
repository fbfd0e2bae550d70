// The attacks. Each is a function that runs in a separate process, and calls failed() if the daemon
// violates a guarantee.
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
  bool alone =
      true;  // false: other vdevices do the same, so that a share ends what a quota permits
};

struct Attack {
  const char* name;
  void (*run)(const Target& target);
  bool tedious = false;  // a hundred thousand calls of one kind, up to a limit
};

std::vector<Attack> message_attacks();     // requests
std::vector<Attack> descriptor_attacks();  // descriptors beside requests
std::vector<Attack> raw_attacks();         // raw packets
std::vector<Attack> ring_attacks();        // shared memory
std::vector<Attack> connection_attacks();  // requests at the rdma_cm socket
std::vector<Attack> memory_attacks();      // keys, and memory that hangs
std::vector<Attack> shown_attacks();       // memory that lies in files of others
std::vector<Attack> object_attacks();      // objects and their lifetimes
std::vector<Attack> stranger_attacks();    // objects of other tenants
std::vector<Attack> race_attacks();        // concurrent changes
std::vector<Attack> process_attacks();     // a process's changes to itself
std::vector<Attack> hold_attacks();        // holds of threads

// A file in a FUSE file system whose server stops answering after `silence` was called. Empty path:
// no FUSE here. Create it before anything else in the process.
struct SilentFile {
  std::string path;
  // In memory that its server shares.
  struct State {
    int silent;
    int asked;  // since then, and a process waits for an answer that does not come
  };
  State* state = nullptr;
  int server = 0;  // process id; kill it before closing the file, which would hang
  void silence() const { __atomic_store_n(&state->silent, 1, __ATOMIC_RELEASE); }
  [[nodiscard]] bool keeps_waiting() const {
    return __atomic_load_n(&state->asked, __ATOMIC_ACQUIRE) != 0;
  }
};
SilentFile make_silent_file(bool reads = false);

}  // namespace vrdma::hostile
