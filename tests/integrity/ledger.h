// Every completion is counted once, and in its order: what a member has posted and what is to come.
//
// Threads: all functions may be called by any thread.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/integrity/model.h"

namespace integrity {

// What completions were counted, over all epochs.
struct Counts {
  std::array<uint64_t, static_cast<size_t>(Kind::kCount)> requests{};
  uint64_t receives = 0, windows = 0, errors = 0, datagrams_sent = 0, datagrams_received = 0;
  std::array<uint64_t, static_cast<size_t>(Way::kCount)> ends{};
  std::array<uint64_t, static_cast<size_t>(Sign::kCount)> ping_pongs{};
  uint64_t undone = 0, done_of_ended = 0;  // requests of links that ended
  uint64_t batches = 0, epochs = 0, lost_epochs = 0, atomics_in_doubt = 0, forks = 0;
  std::atomic<uint64_t> events = 0;
  [[nodiscard]] uint64_t operations() const;
};
Counts& counts();

// Names of work requests: what they are, and a number.
constexpr uint64_t kReceiveBit = uint64_t{1} << 63, kSharedBit = uint64_t{1} << 62,
                   kDatagramBit = uint64_t{1} << 61;

class Ledger {
 public:
  // The books of one queue pair.
  struct Book {
    unsigned link = 0, side = 0;
    bool is_doubtful = false;  // its link ends in this batch
    bool has_failed = false;   // a request, not a receive, has ended with an error
    size_t completions = 0;    // of requests that succeeded
  };
  // Of the SRQ's receives, by their names.
  class Shared {
   public:
    virtual ~Shared() = default;
    // Where the first byte is that is not the message's, or has changed beside it.
    [[nodiscard]] virtual std::optional<size_t> differs(uint64_t name, const Message& message) = 0;
    virtual void release(uint64_t name) = 0;
    [[nodiscard]] virtual const char* memory() const = 0;
  };

  void set_shared(Shared* shared) { shared_ = shared; }

  void open(uint32_t qpn, unsigned link, unsigned side);
  // Forgets all that is outstanding. No completion of it may follow.
  void close(uint32_t qpn);
  void begin_batch();
  void doubt(uint32_t qpn);

  // Before it is posted. Returns its name.
  uint64_t request(uint32_t qpn, ibv_wc_opcode opcode, uint32_t length, bool signaled, int kind,
                   bool by_window = false);
  uint64_t receive(uint32_t qpn);
  void message(uint32_t qpn, Message message);

  // A completion. `in_order`: no other thread can have taken an earlier one and not yet given it.
  void complete(const ibv_wc& wc, bool in_order);

  // No request, no message of healthy links is outstanding, or the run has a complaint.
  [[nodiscard]] bool is_settled() const { return outstanding_ == 0 || has_complaint_; }
  // No receive of this queue pair is outstanding, and no request that has a completion for certain.
  [[nodiscard]] bool is_settled(uint32_t qpn);
  [[nodiscard]] size_t completions(uint32_t qpn);
  [[nodiscard]] size_t messages(uint32_t qpn);  // that are still to come
  [[nodiscard]] size_t requests(uint32_t qpn);  // that have not completed
  // A request of a healthy link has ended with an error.
  [[nodiscard]] bool has_complaint() const { return has_complaint_; }
  [[nodiscard]] std::string complaint();
  [[nodiscard]] bool is_of_atomic();  // as in doubt after a kill of a worker
  [[nodiscard]] uint64_t progress() const { return progress_; }
  [[nodiscard]] std::string outstanding();

 private:
  struct Request {
    uint64_t name;
    ibv_wc_opcode opcode;
    uint32_t length;
    bool signaled;
    int kind;  // -1: of a window
    bool by_window;
  };
  struct Entry : Book {
    std::deque<Request> requests;
    std::deque<Message> messages;
    std::deque<uint64_t> receives;
  };
  void sent(Entry* entry, const ibv_wc& wc, bool in_order);
  void received(Entry* entry, const ibv_wc& wc, bool in_order);
  void failed(Entry* entry, const ibv_wc& wc, const Request* request);
  void settle(const Entry& entry, size_t count) {
    if (!entry.is_doubtful) outstanding_ -= static_cast<int64_t>(count);
  }
  Entry& entry_of(uint32_t qpn);

  Shared* shared_ = nullptr;
  std::mutex mutex_;
  std::unordered_map<uint32_t, Entry> entries_;
  uint64_t next_ = 1;
  std::atomic<int64_t> outstanding_ = 0;  // of healthy links: requests and messages
  std::atomic<uint64_t> progress_ = 0;
  std::atomic<bool> has_complaint_ = false;
  std::string complaint_;
  bool of_atomic_ = false;
};

}  // namespace integrity
