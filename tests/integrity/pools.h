// Receives that do not belong to one stream: of a shared receive queue, and of datagrams.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <mutex>
#include <set>
#include <vector>

#include "tests/integrity/device.h"

namespace integrity {

// An SRQ and its receives. Which message comes into which of them is open; that each comes whole,
// and nothing beside it, is not.
class SharedReceives : public Ledger::Shared {
 public:
  SharedReceives(ibv_pd* pd, const World& world, Memory memory);
  [[nodiscard]] ibv_srq* srq() const { return srq_; }
  // Posts those that have been used. `in_doubt`: one may be given back with a part of a message, so
  // that what stands behind the next one's bytes is open.
  void post(bool in_doubt);
  // Any thread.
  [[nodiscard]] std::optional<size_t> differs(uint64_t name, const Message& message) override;
  void release(uint64_t name) override;
  [[nodiscard]] const char* memory() const override { return memory_; }
  // What is posted has not changed; or, in doubt, is filled again.
  void check();
  void destroy();

 private:
  enum class State : uint8_t { kFree, kPosted };
  [[nodiscard]] std::span<uint8_t> slot(size_t index) const {
    return block_.bytes().subspan(index * kSharedReceiveSize, kSharedReceiveSize);
  }
  [[nodiscard]] size_t index_of(uint64_t name) const;
  void renew(size_t index);

  const uint64_t seed_;
  const char* const memory_;
  Block block_;
  ibv_mr* mr_;
  ibv_srq* srq_;
  std::mutex mutex_;
  bool in_doubt_ = false;
  std::vector<State> states_;
  std::vector<uint64_t> keys_;
};

// A UD queue pair, whose datagrams say what they are. One may be lost; none comes twice, or with
// other bytes.
class Datagrams {
 public:
  Datagrams(Device* device, Memory memory);
  [[nodiscard]] uint32_t qpn() const { return qp_->qp_num; }
  void meet(const std::vector<Info>& infos);
  void may_come_twice(bool may) { may_come_twice_ = may; }
  void may_leave_parts(bool may) { may_leave_parts_ = may; }
  void post();
  // One to each member, or to the multicast group.
  void send(uint32_t length, bool multicast);
  void complete(const ibv_wc& wc);
  [[nodiscard]] bool is_settled() const { return sending_ == 0; }
  void destroy();

 private:
  struct Header {
    uint64_t seed, sequence;
    uint32_t sender, length;
  };
  static constexpr uint32_t kSends = 32;
  [[nodiscard]] uint8_t* receive_slot(size_t index) const {
    return block_.bytes().data() + index * (kGrh + kDatagramSize);
  }
  [[nodiscard]] uint8_t* send_slot(size_t index) const {
    return receive_slot(kDatagrams) + index * kDatagramSize;
  }
  void received(size_t index, const ibv_wc& wc);
  void send_one(ibv_ah* to, uint32_t qpn, uint32_t length);

  Device* device_;
  Block block_;
  ibv_mr* mr_;
  ibv_qp* qp_;
  std::vector<ibv_ah*> handles_;
  std::vector<uint32_t> qpns_;
  ibv_ah* group_ = nullptr;
  std::mutex mutex_;
  std::vector<size_t> free_receives_, free_sends_;
  std::atomic<int> sending_ = 0;
  bool may_come_twice_ = false, may_leave_parts_ = false;
  uint64_t sequence_ = 0;
  std::set<std::pair<uint32_t, uint64_t>> seen_;
};

}  // namespace integrity
