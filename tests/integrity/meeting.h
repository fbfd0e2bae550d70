// Where the members of a run meet. Members may run on several hosts' stacks, in several namespaces,
// with different devices: a Unix socket reaches all of them.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>
#include <vector>

namespace integrity {

constexpr size_t kMostLinks = 48, kMostRegions = 8, kMostAreas = 4, kMostMembers = 6;

// What a member tells the others.
struct Info {
  ibv_gid gid;
  uint64_t areas[kMostAreas];  // addresses
  uint32_t rkeys[kMostRegions];
  uint32_t qpns[kMostLinks][2];        // by link, side
  uint32_t psns[kMostLinks][2];        // that its requests begin with
  uint32_t windows[kMostLinks][2][2];  // rkeys, by link, side of their owner, type - 1
  uint32_t datagram_qpn;
};

// Another member has died, or has given the epoch up: a new one begins.
struct Lost {};

class Meeting {
 public:
  // Joins as member `number`; returns when all have.
  Meeting(const std::string& path, uint32_t number);
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  ~Meeting();
  [[nodiscard]] uint32_t epoch() const { return epoch_; }
  // The run is over; known from the last gather() on.
  [[nodiscard]] bool is_over() const { return over_; }
  // What all members gave, in their order; returns when all have called it. Throws Lost.
  std::vector<Info> gather(const Info& mine);
  // Throws Lost if a member has died. Cheap; waits at most so long for such news.
  void look(int milliseconds = 0);
  void next_epoch() { ++epoch_; }
  // Ends the epoch for all. Throws Lost.
  [[noreturn]] void give_up();

 private:
  // What the server says. Throws Lost if it says so.
  std::vector<Info> hear();

  int fd_;
  uint32_t epoch_ = 0;
  bool over_ = false;
};

// Serves the members, for so many seconds; until all have left. The exit status.
int serve(const std::string& path, uint32_t members, uint32_t seconds);

}  // namespace integrity
