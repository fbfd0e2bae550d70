// A vrdmad on the simulated host, from its start to its end.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "tests/sim/broker.h"
#include "tests/sim/disk.h"
#include "tests/sim/host.h"
#include "tests/sim/links.h"
#include "tests/sim/processes.h"
#include "tests/sim/workers.h"
#include "vrdmad/control/daemon.h"

namespace vrdma::sim {

// The machine's, for one run: what remains when a vrdmad ends.
struct Machine {
  Machine(uint64_t seed, std::string directory);

  Host host;
  const std::string directory;
  const std::unique_ptr<vrdmad::Store> store;
  DiskMood disk;
  WorkerMood workers;
};

// What a subscriber of `vrdmactl watch` believes. Throws Failure if an event makes no sense.
class Watcher {
 public:
  void on(const vrdmad::WatchEvent& event);
  [[nodiscard]] const std::map<uint64_t, vrdmad::VdevInfo>& known() const { return known_; }

 private:
  std::map<uint64_t, vrdmad::VdevInfo> known_;
};

class Life {
 public:
  explicit Life(Machine& machine);
  // Stops vrdmad; after crash(), without writing what is not on disk.
  ~Life();
  Life(const Life&) = delete;
  Life& operator=(const Life&) = delete;
  void crash();

  [[nodiscard]] vrdmad::Daemon& daemon() { return *daemon_; }
  [[nodiscard]] base::EventLoop& loop() { return *loop_; }
  [[nodiscard]] SimBroker& broker() { return *broker_; }
  [[nodiscard]] Workers& workers() { return workers_; }
  [[nodiscard]] const SimLinks& links() const { return *links_; }
  [[nodiscard]] const Watcher& watcher() const { return watcher_; }
  // Nothing is on its way between the daemon and the host.
  [[nodiscard]] bool at_rest() const;
  [[nodiscard]] std::string run_dir() const { return machine_.directory + "/run"; }

 private:
  // One pass while a call of the daemon waits, at most for kPatience in all.
  void pass();

  Machine& machine_;
  std::unique_ptr<base::EventLoop> loop_;
  vrdmad::RunDir run_dir_;
  std::shared_ptr<SimBroker> broker_;
  Workers workers_;
  SimLinks* links_ = nullptr;    // the daemon's
  SimWriter* writer_ = nullptr;  // the daemon's
  SimProcesses* processes_ = nullptr;
  SimAside* aside_ = nullptr;
  Watcher watcher_;
  std::unique_ptr<vrdmad::Daemon> daemon_;
  std::shared_ptr<void> watching_;
  bool crashed_ = false;
};

}  // namespace vrdma::sim
