// Counters that programs read as files, in a vdevice's sysfs tree.
//
// The files are written when a program opens one, before it can read
// (vrdmad/control/read_leases.h). For one period after that, an open does not wake the daemon, so a
// program that opens files in a loop costs the daemon two refreshes a second. After the period, if
// no program has a file open, the daemon takes the leases again, and nothing wakes it until the
// next open. While a program keeps a file open to read it repeatedly, the daemon writes the files
// once a period.
//
// The daemon writes a file in place, because a program may have it open: first the new line, then
// it truncates the rest of a longer line.
//
// Belongs to the control thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/base/event_loop.h"
#include "core/base/fd.h"
#include "vrdmad/control/read_leases.h"

namespace vrdma::vrdmad {

class CounterFiles {
 public:
  using Values = std::map<std::string, uint64_t>;  // by the file's path, in any tree
  using Source = std::function<void(std::function<void(Values)>)>;
  static constexpr base::Duration kPeriod = std::chrono::milliseconds(500);

  // `files`: descriptors to write by, the only ones of this process; `source` is to
  // call its argument once with the content, now or later.
  CounterFiles(base::EventLoop& loop, ReadLeases& leases, std::map<std::string, base::Fd> files,
               Source source, base::Duration period = kPeriod);
  ~CounterFiles();
  CounterFiles(const CounterFiles&) = delete;
  CounterFiles& operator=(const CounterFiles&) = delete;

 private:
  void wait_for_readers();
  void on_opened();
  void look_again();
  void refresh(std::function<void()> then);
  void write(const Values& values);
  void give_up();

  base::EventLoop& loop_;
  ReadLeases& leases_;
  std::map<std::string, base::Fd> files_;
  Source source_;
  base::Duration period_;
  Values written_;
  base::EventLoop::Timer timer_;  // active: there are no leases
  bool asking_ = false;           // the source
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace vrdma::vrdmad
