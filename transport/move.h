// Moving bytes between a buffer of the worker's and a process's memory: by pointers where it is in
// place, by its owner's reach where it is not.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/rdma/buffers.h"
#include "core/rdma/device.h"
#include "core/rdma/process.h"
#include "transport/hole_guard.h"

namespace vrdma::transport {

// Moves what can be moved at once between `pieces` and the bytes from `offset` on. Returns what a
// job of `worker`'s reach has to move: memory that is not in place, or of which a page is missing.
[[nodiscard]] std::vector<rdma::Reach::Part> move_in_place(const rdma::PieceList& pieces,
                                                           const rdma::Process& worker, bool write,
                                                           uint8_t* bytes, uint64_t offset = 0);

// Moves all of `pieces`. True: that was done at once. Else `done` tells, on the loop, whether every
// byte was there and allowed. `payer` pays for what the reach does; nullptr: whose memory it is.
// `written`: the bytes go from the buffer to memory, by way of this queue pair; nullptr: they go
// the other way. `mark`: see Reach::Job::mark; it may be empty.
[[nodiscard]] bool move(const rdma::PieceList& pieces, rdma::Process& worker, rdma::Qp* written,
                        const rdma::Buffer& buffer, uint64_t offset,
                        std::shared_ptr<base::CpuMeter> payer, std::function<void(bool ok)> done,
                        rdma::Reach::Marker mark = {});

// How many of the last `size` bytes that go to `target` are the end of the message, which is seen
// at once and for which programs wait: those of one aligned word.
[[nodiscard]] uint64_t end_of(const rdma::PieceList& target, uint64_t size);

// `done`, which lasts as long as bytes may arrive by way of `qp`.
[[nodiscard]] std::function<void(bool ok)> while_arriving(rdma::Qp& qp,
                                                          std::function<void(bool ok)> done);

}  // namespace vrdma::transport
