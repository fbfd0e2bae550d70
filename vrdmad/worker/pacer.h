// How fast a limited vdevice may be: what stands between its send queues and its rates.
//
// A queue that may not go on waits in a line. When there is something to spend again, the first one
// is called, has a turn, and if it still has work it lines up behind the others; so the queues of a
// vdevice share its rate, whatever the size of their messages. Nobody goes past the line.
//
// Belongs to the worker of the vdevice's fabric.
#pragma once

#include <memory>
#include <vector>

#include "core/base/event_loop.h"
#include "core/rdma/device.h"
#include "core/rdma/line.h"
#include "provisioning/ledger.h"
#include "provisioning/pace.h"

namespace vrdma::vrdmad {

// Of whom a vdevice has its part: its tenant and its parent.
struct Rates {
  std::vector<std::shared_ptr<provisioning::Shares>> bandwidth, messages, cpu;
};

class Pacer final : public rdma::Pace {
 public:
  // What its two rates show.
  struct Shown {
    provisioning::RateUse bytes, messages;
  };
  Pacer(base::EventLoop& loop, const Rates& rates,
        const std::shared_ptr<Shown>& shown = std::make_shared<Shown>());
  Pacer(const Pacer&) = delete;
  Pacer& operator=(const Pacer&) = delete;

  void set(const provisioning::Limits& limits);
  // Nobody need wait any more.
  void dismiss() { line_.dismiss(); }

  [[nodiscard]] bool admit(rdma::Sender& sender) override { return line_.admit(sender); }
  void spend(uint64_t bytes, uint64_t messages) override;
  void leave(rdma::Sender& sender) override { line_.leave(sender); }

 private:
  base::EventLoop& loop_;
  provisioning::Pace bytes_, messages_;
  rdma::Line line_;
};

}  // namespace vrdma::vrdmad
