// What a vdevice counts and uses, where its worker writes it and control reads it.
//
// The page has a fixed layout and no pointers. Each word has one writer, the thread of the worker,
// or is an atomic sum; words that must agree are copied with a version (provisioning/pace.h). So
// control copies the page whenever it likes, and never waits for a worker. What the program of a
// direct link counts in its own memory is added when control asks for it (Worker::collect), and
// before the link or the queue pair goes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "core/base/counter.h"
#include "core/ipc/messages.h"
#include "core/rdma/buffers.h"
#include "core/rdma/reach_threads.h"
#include "core/rdma/traffic.h"
#include "provisioning/ledger.h"
#include "provisioning/request_rate.h"
#include "transport/roce/counters.h"
#include "vrdmad/worker/cpu_pace.h"
#include "vrdmad/worker/pacer.h"

namespace vrdma::vrdmad {

// Counted by a worker, summed for the admin API. Never reset.
struct SessionCounters {
  base::Counter opened;
  base::Counter requests;
  base::Counter refused;    // requests answered with an error
  base::Counter malformed;  // sessions ended because of what they sent or wrote
  base::Counter unproven;  // attempts to open the vdevice by a process that could not be identified
  base::Counter foreign;   // connections of another network namespace
  base::Counter holds;     // of a program's threads, that were asked for
  base::Counter qp1_lost;  // MADs from a program's queue pair 1 that control did not take in time
  // Regions that are reached and not in place, by ipc::Reached.
  std::array<base::Counter, static_cast<size_t>(ipc::kLastReached) + 1> reached;
};

struct VdevicePage {
  rdma::DeviceCounters device;
  SessionCounters sessions;
  provisioning::UsePage quota;
  // What the ledger does not count.
  Pacer::Shown paced;
  CpuPace::Shown cpu;
  provisioning::RequestUse requests;
  rdma::BufferCounters buffers;
  rdma::ReachCounters reaches;
  transport::roce::Counters network;
  // Where the accounts of the vdevice count (Intake::Account), in the worker and in control.
  std::atomic<uint32_t> intake_unfinished = 0;
};
static_assert(std::is_standard_layout_v<VdevicePage> && sizeof(VdevicePage) <= 4096);

// The worker that wrote the page has ended, and another begins: nothing is in use.
void forget_use(VdevicePage& page);

// A part of the page, which keeps all of it.
template <class T>
[[nodiscard]] std::shared_ptr<T> part(const std::shared_ptr<VdevicePage>& page,
                                      T VdevicePage::*member) {
  return {page, &((*page).*member)};
}

// A copy of a page, and what it means now.
struct VdeviceUse {
  rdma::DeviceCounters device;
  SessionCounters counters;
  rdma::FabricCounters fabric;
  std::vector<provisioning::Row> quota;          // in the order of Kind
  uint64_t paced_bytes = 0, paced_messages = 0;  // while it was limited
  base::Duration cpu{};                          // the daemon's for it
  uint64_t reach_turns = 0;
  transport::roce::Counters network;
};
[[nodiscard]] VdeviceUse use_of(const VdevicePage& page, const rdma::FabricCounters& fabric,
                                base::TimePoint now);

}  // namespace vrdma::vrdmad
