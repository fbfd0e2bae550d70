// How far the server has come with the VMM's messages, in memory that outlives its process.
//
// A process that serves a VMM may die at any instruction, and the next one goes on with the same
// socket. So a message stays in the socket (MSG_PEEK) while it is executed:
//
//   begin()   it is executed; what it changes carries its number, and does not count yet
//   note()    with one store, all of it counts, and the answer is kept
//   taken     the message leaves the socket, and its last byte is received into `taken`: by it the
//             next process knows whether that has happened, in the same system call
//   answered  the answer is in the socket
//
// A process that died before note() has done nothing, and the next one executes the message. After
// it, the next one takes the message if that has not happened, and sends the answer that was kept.
// Only between the two last steps nobody knows whether the VMM has its answer. A VMM drops an
// answer that it does not wait for, but a payload would be taken for the next answer. So the next
// process sends an answer without payload again, and an error in place of one with payload.
//
// The process that reads this believes no number in it further than its own: see resume().
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "pvrdma/vfio_user/function.h"
#include "pvrdma/vfio_user/messages.h"

namespace vrdma::pvrdma::vfio {

struct Progress {
  // The longest: of a read of kMostAccess bytes.
  static constexpr size_t kMostAnswer = sizeof(Header) + sizeof(RegionAccess) + kMostAccess;
  // A message of which so many processes died is refused.
  static constexpr uint32_t kMostDeaths = 2;

  struct Noted {
    Header header;
    uint32_t length = 0;  // of the answer; 0: the VMM wants none
    uint32_t file = 0;    // the region whose file goes with it, from 1 on; 0: none
    bool negotiated = false;
    uint8_t last = 0, taken = 0;  // alike: the message was taken
    std::array<uint8_t, kMostAnswer> answer;
  };

  // Numbers of messages, from 1 on.
  std::atomic<uint64_t> begun{0}, noted{0}, answered{0};
  // Those up to this one were of a VMM that has gone.
  std::atomic<uint64_t> cleared{0};
  std::atomic<uint32_t> deaths{0};  // in the message after `noted`
  std::array<Noted, 2> messages;    // by the parity of their numbers

  [[nodiscard]] Noted& of(uint64_t number) { return messages[number % 2]; }

  void begin() { begun.store(noted.load() + 1); }
  // The one that was begun. `taken_last`: the last byte of the message.
  void note(const Header& header, uint8_t taken_last, bool negotiated,
            std::span<const uint8_t> answer, uint32_t file) {
    const uint64_t number = noted.load() + 1;
    Noted& one = of(number);
    one.header = header;
    one.length = static_cast<uint32_t>(answer.size());
    one.file = file;
    one.negotiated = negotiated;
    one.last = taken_last;
    one.taken = static_cast<uint8_t>(~taken_last);
    std::ranges::copy(answer, one.answer.begin());
    deaths.store(0);
    noted.store(number);
  }
  // The VMM has gone.
  void clear() {
    cleared.store(noted.load());
    answered.store(noted.load());
    begun.store(noted.load());
    deaths.store(0);
  }
};

}  // namespace vrdma::pvrdma::vfio
