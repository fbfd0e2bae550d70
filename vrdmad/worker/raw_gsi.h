// The queue pair 1 of a program, as its worker has it. Its MADs go to the shared queue pair 1 and
// come from there by a socket (raw_gsi_socket.h), at whose other end is control's GsiRelay.
//
// Belongs to the worker's thread, which never waits for control: what control has not read in time
// is lost and counted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "core/base/counter.h"
#include "vrdmad/worker/raw_gsi_socket.h"

namespace vrdma::vrdmad {

class RawGsi final : RawGsiSocket::Owner {
 public:
  using Receiver = std::function<void(const transport::AddressedMad&)>;

  // `socket`: what GsiRelay::connect() returned. If it cannot be watched, or after control has
  // closed its end, nothing arrives and all that is sent is lost. `lost`: counts MADs. `loop` and
  // `lost` must outlive it.
  RawGsi(base::EventLoop& loop, base::Fd socket, base::Counter& lost);

  // nullptr: a program has it. The desk must not outlive this.
  [[nodiscard]] std::unique_ptr<transport::MadDesk> open(Receiver receiver);

 private:
  class Desk;
  [[nodiscard]] bool on_message(const RawGsiMessage& message) override;
  void on_room() override { (void)tell(); }
  void on_end(bool) override {}
  void send(const transport::AddressedMad& mad);
  [[nodiscard]] bool tell();

  base::Counter& lost_;
  Receiver receiver_;          // empty: no program has it open
  uint64_t openings_ = 0;      // so far
  uint64_t opening_ = 0;       // the current one, or 0
  uint64_t told_opening_ = 0;  // what control knows of that
  RawGsiSocket socket_;
};

}  // namespace vrdma::vrdmad
