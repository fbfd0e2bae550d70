// One of the two processes of `exchange`: its device, its memory and queue pairs, and its TCP
// connection to the other process. On plain libibverbs, so that it runs on any device.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace exchange {

// A test has failed; a test cannot run on one of the two devices.
struct Failure : std::runtime_error {
  using runtime_error::runtime_error;
};
struct Skipped : std::runtime_error {
  using runtime_error::runtime_error;
};
[[noreturn, gnu::format(printf, 1, 2)]] void fail(const char* format, ...);

// Limit of every wait, in milliseconds: an emulated machine is slow.
constexpr int kPatience = 60'000;

struct Options {
  std::string host;  // of the server; empty: this is the server
  std::string device;
  int gid_index = -1;  // -1: the first RoCE v2 GID of an IPv4 address, or of another one
  uint32_t mtu = 0;    // bytes; 0: the lesser of both active MTUs
  uint32_t seconds = 0;
  uint64_t seed = 0;
  // Milliseconds after which a message of UC or UD is lost; 0: there is a limit, and few may be.
  uint32_t lost_after = 0;
  uint16_t port = 18600;
};

// Random numbers and contents, the same in both processes.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next();
  // From `least` to `most`.
  uint32_t range(uint32_t least, uint32_t most) {
    return least + static_cast<uint32_t>(next() % (uint64_t{most} - least + 1));
  }
  bool one_in(uint32_t n) { return next() % n == 0; }

 private:
  uint64_t state_;
};
// The endless string of `key`, from `position` on.
void fill(uint8_t* to, size_t size, uint64_t key, uint64_t position = 0);

// A TCP connection between the two processes. Any error, and the end of the other, fails the test.
class Channel {
 public:
  explicit Channel(int fd) : fd_(fd) {}
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  template <class T>
  void tell(const T& value) const {
    static_assert(std::is_trivially_copyable_v<T>);
    write_all(&value, sizeof value);
  }
  template <class T>
  [[nodiscard]] T hear() const {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    read_all(&value, sizeof value);
    return value;
  }
  template <class T>
  [[nodiscard]] T swap(const T& mine) const {
    tell(mine);
    return hear<T>();
  }
  // Both are here. A word that differs shows that they are out of step.
  void meet(uint32_t word) const;
  // Fails if the other process has given up.
  void check_peer() const;

 private:
  void write_all(const void* data, size_t size) const;
  void read_all(void* data, size_t size) const;
  int fd_;
};

struct DeviceInfo {  // what both must know of each other's
  ibv_gid gid;
  uint32_t mtu;  // active, bytes
  uint32_t max_inline;
  uint32_t has_windows, has_atomics;
  // The kernel's rxe (by its name), some of whose completions deviate from the specification.
  uint32_t is_rxe, reserved;
};

class Side {
 public:
  Side(const Options& options, int fd, bool is_client, uint64_t seed);
  ~Side();
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  Options options;
  Channel channel;
  bool is_client;
  Random random;  // both processes must draw the same numbers

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  DeviceInfo mine{}, peer{};
  uint32_t mtu = 0;  // of paths, bytes

  // What the test has compared.
  uint64_t messages = 0, bytes = 0, lost = 0;
};

class Memory {
 public:
  static constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  Memory(const Side& side, size_t size, int access = kAllAccess);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  struct Remote {
    uint64_t address;
    uint32_t rkey, reserved;
  };
  [[nodiscard]] Remote remote() const { return {reinterpret_cast<uint64_t>(data), mr->rkey, 0}; }
  [[nodiscard]] ibv_sge sge(uint64_t offset, uint32_t length) const {
    return {reinterpret_cast<uint64_t>(data) + offset, length, mr->lkey};
  }
  // Fails unless the first bytes are these. `what`: for the message.
  void compare(std::span<const uint8_t> expected, const char* what) const;

  uint8_t* data = nullptr;
  size_t size = 0;
  ibv_mr* mr = nullptr;
};

struct QpOptions {
  ibv_qp_type type = IBV_QPT_RC;
  uint32_t depth = 128, max_sge = 4, max_inline = 0;
  uint8_t timeout = 17, retry_cnt = 7, rnr_retry = 7, min_rnr_timer = 12;
  uint8_t max_rd_atomic = 4;
  ibv_srq* srq = nullptr;
};
constexpr uint32_t kQkey = 0x1234;

// A queue pair with its two completion queues, connected to the other side's when it is made.
class Qp {
 public:
  Qp(Side& side, const QpOptions& options);
  ~Qp();
  Qp(const Qp&) = delete;
  Qp& operator=(const Qp&) = delete;

  void post(ibv_send_wr wr, std::span<ibv_sge> sges);
  void post_receive(uint64_t wr_id, std::span<ibv_sge> sges);
  // The next completion of a request, or of a receive.
  [[nodiscard]] ibv_wc sent() { return next(send_cq, kPatience); }
  [[nodiscard]] ibv_wc received() { return next(recv_cq, kPatience); }
  ibv_wc expect_sent(uint64_t wr_id, ibv_wc_status status = IBV_WC_SUCCESS);
  ibv_wc expect_received(uint64_t wr_id, ibv_wc_status status = IBV_WC_SUCCESS);
  // False: there was none in time.
  [[nodiscard]] bool received(ibv_wc* wc, int milliseconds);
  void await_error_state();

  ibv_qp* qp = nullptr;
  ibv_cq *send_cq = nullptr, *recv_cq = nullptr;
  ibv_comp_channel* events = nullptr;  // of receives
  ibv_ah* ah = nullptr;                // UD
  uint32_t peer_qpn = 0;
  uint32_t max_inline = 0;  // granted

 private:
  [[nodiscard]] ibv_wc next(ibv_cq* cq, int milliseconds);
  [[nodiscard]] bool poll(ibv_cq* cq, ibv_wc* wc, int milliseconds);
  void to_init(const QpOptions& options);
  void to_rtr(const QpOptions& options, uint32_t psn);
  void to_rts(const QpOptions& options, uint32_t psn);

  Side& side_;
};

// The tests, in data.cc and errors.cc. Both processes call the same one at the same time.
struct Test {
  const char* name;
  void (*run)(Side&);
};
extern const std::span<const Test> kDataTests, kErrorTests;

}  // namespace exchange
