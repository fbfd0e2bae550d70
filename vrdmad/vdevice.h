// A vdevice as its worker runs it: the verbs device, what it may use, and who uses it.
#pragma once

#include <list>
#include <memory>
#include <string>

#include "core/rdma/device.h"
#include "provisioning/ledger.h"
#include "provisioning/permission.h"

namespace vrdma::vrdmad {

class Session;

// Counted by a worker, summed for the admin API. Never reset.
struct SessionCounters {
  uint64_t opened = 0;
  uint64_t requests = 0;
  uint64_t refused = 0;    // requests answered with an error
  uint64_t malformed = 0;  // sessions ended because of what they sent or wrote
  uint64_t foreign = 0;    // connections of another network namespace
};

// What the workers share: nothing but how the daemon was started.
struct SessionSettings {
  uint32_t grace_ms = 30'000;
};

// Lives on one worker. Sessions hold it, so that it outlives its own deletion as long as programs
// have it open; `gone` is then set and all that is left to them is to destroy their objects.
struct Vdevice {
  rdma::Device device;
  provisioning::Ledger ledger;
  provisioning::Permissions permissions;
  std::list<std::unique_ptr<Session>> sessions;
  SessionCounters counters;
  bool gone = false;

  explicit Vdevice(provisioning::Ledger limits);
  ~Vdevice();
  Vdevice(const Vdevice&) = delete;
  Vdevice& operator=(const Vdevice&) = delete;
};

}  // namespace vrdma::vrdmad
