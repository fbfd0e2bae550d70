// The Prometheus endpoint for other hosts: a process of its own speaks TLS and checks who asks.
//
//   Prometheus --TLS--> process vrdmad-metrics --a byte--> control thread
//                                         <--text---
//
// What comes from the network is parsed by that process alone. It has the daemon's user, no
// capability and few system calls: it opens files only to read them, makes no socket, and executes
// nothing. Of the daemon's state it has the text of the metrics. Control does not believe it: it
// reads a byte at a time and answers by the same text as to others (scrapes.h).
//
// The process ends with vrdmad, whose end of the socket pair is closed then. If it ends before, the
// metrics are gone until vrdmad is started again, and the rest goes on.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/error.h"
#include "core/base/event_loop.h"
#include "core/base/fd.h"
#include "core/serve/tls.h"
#include "vrdmad/admin/scrapes.h"

namespace vrdma::vrdmad {

// Forks the process, as root and before this process has threads. Returns the socket to it when it
// listens on `address` and has read the files, after it has called `confine`, with which it gives
// up its privileges. So it can read the files again as well.
[[nodiscard]] base::Result<base::Fd> start_metrics_process(
    const std::string& address, const serve::TlsFiles& files,
    const std::function<base::Result<void>()>& confine);

// The control thread's side.
class RemoteMetrics {
 public:
  // Answers `process` from now on. `loop` and `scrapes` must outlive this object. `ended` is called
  // once, if the process ends.
  [[nodiscard]] static base::Result<std::unique_ptr<RemoteMetrics>> attach(
      base::EventLoop& loop, base::Fd process, Scrapes& scrapes, std::function<void()> ended);
  RemoteMetrics(const RemoteMetrics&) = delete;
  RemoteMetrics& operator=(const RemoteMetrics&) = delete;

 private:
  RemoteMetrics(base::EventLoop& loop, base::Fd process, Scrapes& scrapes,
                std::function<void()> ended)
      : loop_(loop), process_(std::move(process)), scrapes_(scrapes), ended_(std::move(ended)) {}
  base::Result<void> watch(uint32_t events);
  void on_ready(uint32_t events);
  void send();

  base::EventLoop& loop_;
  const base::Fd process_;
  Scrapes& scrapes_;
  std::function<void()> ended_;
  std::string answer_;  // what is still to be sent of it, from sent_ on
  size_t sent_ = 0;
  base::EventLoop::Watch watch_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // for a text that comes later
};

}  // namespace vrdma::vrdmad
