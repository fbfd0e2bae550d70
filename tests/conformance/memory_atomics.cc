// Atomics of several queue pairs on one word lose no update, whatever memory contains it, and
// wherever their results go (IBV_ATOMIC_HCA).
#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/conformance/memory.h"

namespace conformance {

namespace {

constexpr size_t kRounds = 400;  // of each queue pair
constexpr size_t kBatch = 25;    // of these at a time
constexpr size_t kLocks = 100;   // words after the counter
constexpr size_t kBytes = (1 + kLocks) * 8;
constexpr size_t kQps = 3;  // two of a's, and one of b's that is connected to b itself

struct Sender {
  Cq& cq;
  std::vector<Qp*> qps;
  const Buffer& answers;  // kBatch words for each queue pair

  // Calls `post(which, i, sge)` for each queue pair and each i below `rounds`; returns the results.
  template <class Post>
  [[nodiscard]] std::vector<uint64_t> run(size_t rounds, const Post& post) const {
    std::vector<uint64_t> all;
    for (size_t first = 0; first < rounds; first += kBatch) {
      for (size_t i = first; i < first + kBatch; ++i)
        for (size_t which = 0; which < qps.size(); ++which)
          post(which, i, answers.sge((which * kBatch + i - first) * 8, 8));
      for (size_t i = 0; i < kBatch * qps.size(); ++i) CHECK_EQ(cq.wait().status, IBV_WC_SUCCESS);
      for (size_t i = 0; i < kBatch * qps.size(); ++i) {
        uint64_t word = 0;
        std::memcpy(&word, answers.data + i * 8, sizeof word);
        all.push_back(word);
      }
    }
    return all;
  }
};

// The results of both sides, on b.
std::vector<uint64_t> together(const Side& side, std::vector<uint64_t> mine) {
  if (side.is_a()) {
    side.tell(mine.size());
    side.send(mine.data(), mine.size() * sizeof mine[0]);
    return {};
  }
  std::vector<uint64_t> theirs(side.hear<size_t>());
  side.receive(theirs.data(), theirs.size() * sizeof theirs[0]);
  mine.insert(mine.end(), theirs.begin(), theirs.end());
  return mine;
}

void run(const Side& side, const Sender& sender, const Buffer& words) {
  const Remote remote = side.is_a() ? side.hear<Remote>() : remote_of(words);
  if (!side.is_a()) side.tell(remote);
  side.meet(1);
  std::vector<uint64_t> counts =
      together(side, sender.run(kRounds, [&](size_t which, size_t i, const ibv_sge& sge) {
        sender.qps[which]->fetch_add(i, sge, remote, 0, 1);
      }));
  // A lock is 0, or the number of its holder.
  const uint64_t first = side.is_a() ? 1 : kQps;
  side.meet(2);
  const std::vector<uint64_t> holders =
      together(side, sender.run(kLocks, [&](size_t which, size_t i, const ibv_sge& sge) {
        sender.qps[which]->compare_swap(i, sge, remote, (1 + i) * 8, 0, first + which);
      }));
  if (!side.is_a()) {
    uint64_t sum = 0;
    std::memcpy(&sum, words.data, sizeof sum);
    CHECK_EQ(sum, kQps * kRounds);
    CHECK_EQ(counts.size(), kQps * kRounds);
    std::sort(counts.begin(), counts.end());
    for (size_t i = 0; i < counts.size(); ++i) CHECK_EQ(counts[i], i);
    CHECK_EQ(std::count(holders.begin(), holders.end(), 0u), static_cast<ssize_t>(kLocks));
  }
  side.meet(3);
}

}  // namespace

CONFORMANCE_TEST(memory, atomics_of_many_queue_pairs) {
  Cq cq(side);
  Qp one(side, cq), two(side, cq);
  one.connect();
  two.connect();
  Qp left(side, cq), right(side, cq);
  left.to_init();
  right.to_init();
  left.to_rtr(right.endpoint());
  right.to_rtr(left.endpoint());
  left.to_rts();
  right.to_rts();
  for (const int operands : {MAP_SHARED, MAP_PRIVATE}) {
    for (const int results : {MAP_SHARED, MAP_PRIVATE}) {
      const Buffer words(side, kBytes, kAllAccess, nullptr, operands);
      const Buffer answers(side, kQps * kBatch * 8, kAllAccess, nullptr, results);
      Sender sender{cq, {&left}, answers};
      if (side.is_a()) sender.qps = {&one, &two};
      run(side, sender, words);
    }
  }
}

}  // namespace conformance
