// Simulated worker processes: they believe what control tells them, answer after a while, and die.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/broker.h"
#include "tests/sim/host.h"
#include "vrdmad/control/outside.h"
#include "vrdmad/worker/worker_end.h"

namespace vrdma::sim {

struct WorkerMood {
  base::Duration longest = std::chrono::milliseconds(2);  // that a message waits
  uint64_t refuses_one_in = 0;                            // changes of limits; 0: none
};

// What a worker knows of a vdevice.
struct KnownVdevice {
  vrdmad::AddVdevice added;
  vrdmad::PortStatus port;
  std::vector<verbs::Gid> gids;
  std::map<provisioning::Kind, uint64_t> limits;
  std::shared_ptr<vrdmad::VdevicePage> page;  // where it shows them
  void show_limits() const;
};

class Workers {
 public:
  Workers(Host& host, SimBroker& broker, base::EventLoop& loop, const WorkerMood& mood)
      : host_(host), broker_(broker), loop_(loop), mood_(mood) {}

  [[nodiscard]] vrdmad::Outside::StartWorker starter();
  // Nothing that was told is on its way.
  [[nodiscard]] bool at_rest() const;
  // Of each worker: the vdevices that it has, by id.
  [[nodiscard]] std::vector<const std::map<uint64_t, KnownVdevice>*> known() const;
  // One that `chance` chooses, if there are any: it dies; it serves nothing for a time; a program
  // of it ends.
  bool kill_one(Chance& chance);
  bool stop_one(Chance& chance, base::Duration how_long);
  bool end_program(Chance& chance);

 private:
  struct One;
  class End;
  static void serve(const std::shared_ptr<One>& one);

  Host& host_;
  SimBroker& broker_;
  base::EventLoop& loop_;
  const WorkerMood& mood_;
  std::map<uint32_t, std::shared_ptr<One>> living_;  // by entry
};

}  // namespace vrdma::sim
