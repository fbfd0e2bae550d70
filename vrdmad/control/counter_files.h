// Counters that programs read as files, in a vdevice's sysfs tree.
//
// The files are written when a program opens one, before it can read
// (vrdmad/control/read_leases.h). From then on all of them are at most a period old: opening them
// asks nobody any more, so that a program which opens files in a loop costs the daemon two
// refreshes a second. When the time is over and no program has a file open, the files wait for the
// next reader again, and nothing wakes the daemon. While a program keeps one open, to read it again
// and again as it may with the kernel's, they are written once a period.
//
// A file is written in place, because a program may have it open: a line, and then what is left of
// a longer one before it is cut off.
//
// Belongs to the control thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "core/base/event_loop.h"
#include "core/base/fd.h"
#include "vrdmad/control/read_leases.h"

namespace vrdma::vrdmad {

class CounterFiles {
 public:
  using Values = std::map<std::string, uint64_t>;  // by the file's path, in any tree
  static constexpr base::Duration kPeriod = std::chrono::milliseconds(500);

  // `files`: descriptors to write by, the only ones of this process; `values` tells the content
  // now.
  CounterFiles(base::EventLoop& loop, ReadLeases& leases, std::map<std::string, base::Fd> files,
               std::function<Values()> values, base::Duration period = kPeriod);
  ~CounterFiles();
  CounterFiles(const CounterFiles&) = delete;
  CounterFiles& operator=(const CounterFiles&) = delete;

 private:
  void wait_for_readers();
  void on_opened();
  void look_again();
  void refresh();
  void give_up();

  base::EventLoop& loop_;
  ReadLeases& leases_;
  std::map<std::string, base::Fd> files_;
  std::function<Values()> values_;
  base::Duration period_;
  Values written_;
  base::EventLoop::Timer timer_;  // active: there are no leases
};

}  // namespace vrdma::vrdmad
