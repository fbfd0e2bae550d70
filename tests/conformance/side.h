// One of the two processes of a test: its device, and its channel to the other process outside of
// verbs.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/conformance/test.h"

namespace conformance {

struct SideOptions {
  bool is_a = true;
  int channel = -1;  // stream socket to the other side
  int errands = -1;  // stream socket to the launcher
  uint64_t seed = 1;
};

// Limit of every wait, in milliseconds, after which a test fails.
constexpr int kPatience = 30'000;

class Side {
 public:
  explicit Side(const SideOptions& options);
  ~Side();
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  [[nodiscard]] bool is_a() const { return options_.is_a; }
  [[nodiscard]] uint64_t seed() const { return options_.seed; }

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  uint8_t gid_index = 0;  // of the IPv4 address
  ibv_gid gid{};
  ibv_mtu mtu{};  // active

  // To the other side and back, without verbs. receive() and await() block in read(2).
  void send(const void* data, size_t size) const;
  void receive(void* data, size_t size) const;
  template <class T>
  void tell(const T& value) const {
    static_assert(std::is_trivially_copyable_v<T>);
    send(&value, sizeof value);
  }
  template <class T>
  [[nodiscard]] T hear() const {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    receive(&value, sizeof value);
    return value;
  }
  template <class T>
  [[nodiscard]] T exchange(const T& mine) const {
    tell(mine);
    return hear<T>();
  }
  // A word that both ends must agree on, so that a test out of step fails with a message.
  void tell_word(uint32_t word) const { tell(word); }
  void await_word(uint32_t word) const { CHECK_EQ(hear<uint32_t>(), word); }
  void meet(uint32_t word) const {
    tell_word(word);
    await_word(word);
  }
  // Returns when the other process has ended.
  void await_end_of_peer() const;

  // Asks the launcher to change this side's link: "address add 10.0.0.77", "link down", ...
  void errand(const std::string& words) const;

  // Closes the device. The destructor does so too.
  void close();

 private:
  SideOptions options_;
};

}  // namespace conformance
