// What operators may want to know later: refusals, lost vdevices, takeovers, dead workers.
//
// Bounded by bytes. If it is full, the largest share loses its oldest event, so that the refusals
// of a tenant, or of all containers of a user, never push out the events of others. The same event
// again, within ten minutes of its last time, only counts there. Two are the same if all but their
// times and counts are.
//
// It survives the daemon in a file of the state directory, which a thread replaces as a whole while
// there is something new: after two seconds, and then so rarely that the disk gets no more than
// kDiskRate on average, whatever tenants do. So a daemon that is killed loses the events of its
// last two seconds, or of its last minute if the log is full; one that is stopped loses none. A
// host that loses power may lose more, because nothing is forced to the disk. A damaged file is an
// empty one.
//
// Belongs to the control thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "core/base/event_loop.h"
#include "vrdmad/admin/backend.h"

namespace vrdma::vrdmad {

class EventLog {
 public:
  static constexpr size_t kMostBytes = 1u << 20;  // of memory, of about 3000 events
  static constexpr size_t kMostOfText = 256;      // bytes of each text of an event
  static constexpr auto kSame = std::chrono::minutes(10);
  static constexpr auto kDelay = std::chrono::seconds(2);
  static constexpr size_t kDiskRate = 16384;  // bytes per second
  static constexpr uint64_t kMostCount = uint64_t{1} << 53;

  // `path`: of the file; empty: none. Reads it.
  EventLog(base::EventLoop& loop, std::string path);
  ~EventLog();  // writes the file
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  // Now. `event.number`, `first` and `last` are set; its texts are cut.
  void add(EventRow event) { add(std::move(event), std::chrono::system_clock::now()); }
  void add(EventRow event, EventRow::Time now);

  // Those whose last time is not before `since`, in the order of it; of these the `most` newest.
  [[nodiscard]] std::vector<EventRow> since(EventRow::Time since, size_t most = SIZE_MAX) const;
  // The number of the newest; 0: there is none.
  [[nodiscard]] uint64_t last() const { return events_.empty() ? 0 : events_.back().number; }

  // Called for each new event, and for one that is counted again when its count reaches a power of
  // two, until the result is destroyed.
  using Watcher = std::function<void(const EventRow&)>;
  [[nodiscard]] std::shared_ptr<void> watch(Watcher watcher);

 private:
  using Events = std::list<EventRow>;  // by their last times
  using Key = std::tuple<std::string, uint64_t, int32_t, std::string, std::string>;
  [[nodiscard]] static Key key_of(const EventRow& event);
  [[nodiscard]] static size_t size_of(const EventRow& event);
  void enter(EventRow event);
  void make_room();
  void forget(Events::iterator event);
  void read();
  void write_later();
  void write(std::launch how);

  base::EventLoop& loop_;
  const std::string path_;
  Events events_;
  std::map<Key, Events::iterator> latest_;
  std::map<std::string, size_t> shares_;  // bytes
  size_t bytes_ = 0;
  uint64_t next_ = 1;
  std::map<uint64_t, Watcher> watchers_;
  uint64_t next_watcher_ = 1;
  base::Duration pause_ = kDelay;  // before the next write
  base::EventLoop::Timer due_;
  std::future<void> writing_;  // invalid: nothing was written yet
  std::shared_ptr<EventLog*> self_ = std::make_shared<EventLog*>(this);  // of watches
};

}  // namespace vrdma::vrdmad
