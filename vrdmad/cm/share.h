// How many of a kind a network namespace has, of those that all namespaces may have together.
//
// While all have less than half of that, each may have as many as it wants, up to its own limit.
// Beyond, only a namespace that has less than its share gets more. So namespaces that take all they
// can leave room for the others. The control thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

namespace vrdma::vrdmad {

class CmShare {
 public:
  struct Limits {
    uint32_t most;    // of one namespace
    uint32_t share;   // of one namespace
    uint32_t of_all;  // of all namespaces
  };

  // `all`: of all namespaces.
  CmShare(const Limits& limits, std::shared_ptr<uint32_t> all)
      : limits_(limits), all_(std::move(all)) {}
  CmShare(const CmShare&) = delete;
  CmShare& operator=(const CmShare&) = delete;
  ~CmShare() { remove(count_); }

  [[nodiscard]] uint32_t count() const { return count_; }
  [[nodiscard]] bool has_room(uint32_t number = 1) const {
    const uint64_t here = uint64_t{count_} + number, of_all = uint64_t{*all_} + number;
    const bool few = here <= limits_.share;
    return here <= limits_.most && of_all <= (few ? limits_.of_all : limits_.of_all / 2);
  }
  void add(uint32_t number = 1) {
    count_ += number;
    *all_ += number;
  }
  void remove(uint32_t number = 1) {
    count_ -= number;
    *all_ -= number;
  }

 private:
  const Limits limits_;
  const std::shared_ptr<uint32_t> all_;
  uint32_t count_ = 0;
};

}  // namespace vrdma::vrdmad
