// Relays MADs between the queue pair 1 of a program, which its worker has
// (vrdmad/worker/raw_gsi.h), and the vdevice's endpoint at the shared queue pair 1.
//
// Belongs to the control thread. While no program has queue pair 1 open, nothing arrives and
// nothing is done. A worker that sends nonsense is not heard any more, until another replaces it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "qp1mux/endpoint.h"
#include "vrdmad/worker/raw_gsi_socket.h"
#include "vrdmad/worker/vdevice_page.h"

namespace vrdma::vrdmad {

class GsiRelay final : qp1mux::RawHandler, RawGsiSocket::Owner {
 public:
  // `loop` must outlive it. `label`: what the log calls the vdevice. `page`: where its worker
  // counts what is lost on the way from the program.
  // `opened`: called when a program has opened queue pair 1; not after the relay is gone.
  GsiRelay(base::EventLoop& loop, std::string label, std::shared_ptr<const VdevicePage> page,
           std::function<void()> opened = {})
      : label_(std::move(label)),
        page_(std::move(page)),
        opened_(std::move(opened)),
        socket_(loop, *this) {}

  // Returns the worker's end of a new pair of sockets, for RawGsi. A second call is for a worker
  // that replaces another: what the first worker had open is closed, and what it sends is not read.
  [[nodiscard]] base::Result<base::Fd> connect();

  // The endpoint exists from here on, or goes (nullptr).
  void attach(qp1mux::Endpoint* endpoint);

  // A program has queue pair 1.
  [[nodiscard]] bool is_open() const { return opening_ != 0; }

  // MADs from and to programs for which there was no room.
  [[nodiscard]] uint64_t lost() const { return lost_ + page_->sessions.qp1_lost; }

 private:
  void on_mad(const qp1mux::Packet& packet) override;
  [[nodiscard]] bool on_message(const RawGsiMessage& message) override;
  void on_end(bool broken) override;
  void open(uint64_t opening);
  void send(const transport::AddressedMad& all);

  const std::string label_;
  const std::shared_ptr<const VdevicePage> page_;
  const std::function<void()> opened_;
  uint64_t lost_ = 0;  // to programs
  qp1mux::Endpoint* endpoint_ = nullptr;
  uint64_t opening_ = 0;  // the worker's number for it; 0: no program has queue pair 1
  qp1mux::RawPort port_;
  RawGsiSocket socket_;
};

}  // namespace vrdma::vrdmad
