#include "vrdmad/control/event_log.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <system_error>

#include "core/base/fd.h"
#include "vrdmad/admin/translation.h"

namespace vrdma::vrdmad {

namespace {

constexpr size_t kMostOfFile = 4 * EventLog::kMostBytes;

base::Result<void> replace(const std::string& path, const std::string& bytes) {
  const std::string next = path + ".new";
  const base::Fd file(
      ::open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return base::fail_errno("write " + next);
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t written = ::write(file.get(), bytes.data() + done, bytes.size() - done);
    if (written < 0) return base::fail_errno("write " + next);
    done += static_cast<size_t>(written);
  }
  if (::rename(next.c_str(), path.c_str()) != 0) return base::fail_errno("replace " + path);
  return {};
}

}  // namespace

EventLog::EventLog(base::EventLoop& loop, std::string path) : loop_(loop), path_(std::move(path)) {
  if (!path_.empty()) read();
}

EventLog::~EventLog() {
  *self_ = nullptr;
  if (!due_.active()) return;
  if (writing_.valid()) writing_.wait();
  write(std::launch::deferred);
  writing_.wait();
}

EventLog::Key EventLog::key_of(const EventRow& event) {
  return {event.type, event.vdev.id, event.pid,
          event.vdev.name + "\n" + event.tenant + "\n" + event.who, event.reason};
}

size_t EventLog::size_of(const EventRow& event) {
  return sizeof event + event.type.size() + event.vdev.name.size() + event.vdev.netns.size() +
         event.tenant.size() + event.who.size() + event.program.size() + event.reason.size() +
         event.share.size();
}

void EventLog::add(EventRow event, EventRow::Time now) {
  for (auto* text : {&event.vdev.name, &event.vdev.netns, &event.tenant, &event.who, &event.program,
                     &event.reason, &event.share})
    if (text->size() > kMostOfText) text->resize(kMostOfText);
  const Key key = key_of(event);
  event.count = std::clamp<uint64_t>(event.count, 1, kMostCount);
  event.first = event.last = now;
  bool is_told = true;
  if (const auto known = latest_.find(key);
      known != latest_.end() && now - known->second->last < kSame) {
    EventRow& same = *known->second;
    event.count = std::min(event.count + same.count, kMostCount);
    is_told = std::bit_width(same.count) != std::bit_width(event.count);
    event.first = same.first;
    forget(known->second);
  }
  event.number = next_++;
  enter(event);
  make_room();
  write_later();
  if (!is_told) return;
  for (const auto& [id, watcher] : watchers_) watcher(event);
}

void EventLog::enter(EventRow event) {
  bytes_ += size_of(event);
  shares_[event.share] += size_of(event);
  const auto it = events_.insert(events_.end(), std::move(event));
  latest_[key_of(*it)] = it;
}

void EventLog::forget(Events::iterator event) {
  const size_t size = size_of(*event);
  bytes_ -= size;
  if (const auto its = shares_.find(event->share); (its->second -= size) == 0) shares_.erase(its);
  if (const auto its = latest_.find(key_of(*event)); its != latest_.end() && its->second == event)
    latest_.erase(its);
  events_.erase(event);
}

void EventLog::make_room() {
  while (bytes_ > kMostBytes) {
    const auto most = std::max_element(
        shares_.begin(), shares_.end(),
        [](const auto& one, const auto& other) { return one.second < other.second; });
    forget(std::find_if(events_.begin(), events_.end(),
                        [&](const EventRow& event) { return event.share == most->first; }));
  }
}

std::vector<EventRow> EventLog::since(EventRow::Time since, size_t most) const {
  auto first = events_.end();
  for (; first != events_.begin() && most > 0; --most) {
    if (std::prev(first)->last < since) break;
    --first;
  }
  return {first, events_.end()};
}

std::shared_ptr<void> EventLog::watch(Watcher watcher) {
  const uint64_t id = next_watcher_++;
  watchers_.emplace(id, std::move(watcher));
  return std::shared_ptr<void>(nullptr, [id, self = self_](void*) {
    if (*self != nullptr) (*self)->watchers_.erase(id);
  });
}

void EventLog::read() {
  std::ifstream file(path_, std::ios::binary);
  std::string bytes(kMostOfFile, '\0');
  if (file) file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  auto events = events_of(bytes);
  if (!events) return spdlog::warn("{} is damaged: the events in it are lost", path_);
  for (EventRow& event : *events) {
    next_ = std::max(next_, event.number + 1);
    enter(std::move(event));
  }
  make_room();
}

void EventLog::write_later() {
  if (path_.empty() || due_.active()) return;
  due_ = loop_.after(pause_, [this] {
    due_.reset();
    if (writing_.valid() && writing_.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
      return write_later();  // the disk hangs
    try {
      write(std::launch::async);
    } catch (const std::system_error&) {  // there are no more threads
      write_later();
    }
  });
}

void EventLog::write(std::launch how) {
  const std::vector<EventRow> all(events_.begin(), events_.end());
  std::string bytes = bytes_of(all);
  pause_ = kDelay + std::chrono::milliseconds(bytes.size() * 1000 / kDiskRate);
  writing_ = std::async(how, [path = path_, bytes = std::move(bytes)] {
    if (auto written = replace(path, bytes); !written)
      spdlog::error("events will not survive this daemon: {}", written.error().message());
  });
}

}  // namespace vrdma::vrdmad
