#include "vrdmad/control/workers.h"

#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

namespace vrdma::vrdmad {

using base::pass;
using base::Result;

namespace {
constexpr uint64_t kSentences = 50;  // a second, and at once
}  // namespace

WorkerEnd* Workers::find(const std::string& domain) const {
  const auto it = places_.find(domain);
  return it != places_.end() ? it->second.end.get() : nullptr;
}

Result<WorkerEnd*> Workers::need(const std::string& domain) {
  if (WorkerEnd* const running = find(domain)) {
    end_if_idle(domain);
    return running;
  }
  auto started = start(domain);
  if (started)
    lacks_.erase(domain);
  else
    note_lack(domain, started.error().message());
  return started;
}

void Workers::note_lack(const std::string& domain, const std::string& why) {
  const auto now = loop_.now();
  std::erase_if(lacks_, [now](const auto& one) { return now - one.second.last > kLackLasts; });
  Lack& its = lacks_.try_emplace(domain, Lack{now, now, {}}).first->second;
  its.last = now;
  its.why = why;
}

const Workers::Lack* Workers::lack(const std::string& domain) const {
  const auto it = lacks_.find(domain);
  return it != lacks_.end() ? &it->second : nullptr;
}

Result<WorkerEnd*> Workers::start(const std::string& domain) {
  const auto now = loop_.now();
  std::erase_if(deaths_, [now](const auto& one) { return now - one.second.back() > kPause; });
  if (const auto its = deaths_.find(domain); its != deaths_.end() && its->second.size() >= kDeaths)
    return base::fail(EAGAIN, "its workers end again and again: the next starts in a moment");
  if (has_too_many_ending(domain))
    return base::fail(EBUSY, "its last " + std::to_string(kMostEnding) +
                                 " workers cannot end, because the memory of a program of its "
                                 "tenant hangs: end that program");
  Place place;
  place.number = ++last_number_;
  while (slots_.contains(place.slot)) ++place.slot;
  if (place.slot > kMost) return base::fail(EUSERS, "start a worker: there are as many as can be");
  auto worker = start_(
      place.slot,
      [this, domain, number = place.number](const ToControl& message) {
        const auto it = places_.find(domain);
        if (it != places_.end() && it->second.number == number) events_.came(domain, message);
      },
      [this, domain, number = place.number](const std::string& why) {
        const auto it = places_.find(domain);
        if (it != places_.end() && it->second.number == number) died(domain, why);
      });
  if (!worker) return pass(std::move(worker).error(), "start a worker");
  place.end = std::move(worker->end);
  place.passes = std::move(worker->passes);
  place.helpers = std::move(worker->helpers);
  place.sentences.set(kSentences, kSentences);
  slots_.insert(place.slot);
  WorkerEnd* const running = place.end.get();
  places_[domain] = std::move(place);
  events_.started(domain);
  end_if_idle(domain);
  return running;
}

bool Workers::has_too_many_ending(const std::string& domain) const {
  const auto its = [&](const auto& one) { return one.second.domain == domain; };
  return std::count_if(ending_.begin(), ending_.end(), its) >= ptrdiff_t{kMostEnding};
}

void Workers::wait_for_end(const std::string& domain, const Place& place) {
  base::Fd report = place.end->report();
  if (!report.valid()) return;
  auto watch = loop_.watch(report.get(), EPOLLIN,
                           [this, number = place.number](uint32_t) { reaped(number); });
  if (!watch) return;
  ending_[place.number] = {domain, std::move(report), std::move(*watch)};
}

void Workers::reaped(uint64_t number) {
  const auto ending = ending_.extract(number);
  if (ending.empty()) return;
  uint64_t limit = 0;
  if (::read(ending.mapped().report.get(), &limit, sizeof limit) != sizeof limit) return;
  const std::string& domain = ending.mapped().domain;
  spdlog::error(
      "the kernel has killed the worker of {}: it needed more than its {} MiB of memory "
      "(memory.max of its control group)",
      domain, limit >> 20);
  events_.exceeded(domain);
}

unsigned Workers::slot_of(const std::string& domain) const { return places_.at(domain).slot; }

bool Workers::may_say(const std::string& domain) {
  return places_.at(domain).sentences.take(loop_.now());
}

bool Workers::crashes(const std::string& domain) {
  return !std::exchange(places_.at(domain).crashes, true);
}

void Workers::add(const std::string& domain, uint64_t connection) {
  Place& place = places_.at(domain);
  place.connections.insert(connection);
  place.idle.reset();
}

bool Workers::has(const std::string& domain, uint64_t connection) const {
  const auto it = places_.find(domain);
  return it != places_.end() && it->second.connections.contains(connection);
}

const std::string* Workers::domain_of(uint64_t connection) const {
  for (const auto& [domain, place] : places_)
    if (place.connections.contains(connection)) return &domain;
  return nullptr;
}

void Workers::ended(const std::string& domain, uint64_t connection) {
  places_.at(domain).connections.erase(connection);
  end_if_idle(domain);
}

void Workers::end_if_idle(const std::string& domain) {
  Place& place = places_.at(domain);
  if (!place.connections.empty()) return;
  place.idle = loop_.after(kIdle, [this, domain] { (void)take_out(domain, End::kIdle); });
}

// What the worker took of budgets goes with it.
std::set<uint64_t> Workers::take_out(const std::string& domain, End how) {
  Place place = std::move(places_.extract(domain).mapped());
  wait_for_end(domain, place);
  place.end.reset();
  for (const base::Fd& helper : place.helpers) ::shutdown(helper.get(), SHUT_RDWR);
  slots_.erase(place.slot);
  events_.ended(domain, place.slot, how);
  return std::move(place.connections);
}

void Workers::died(const std::string& domain, const std::string& why) {
  spdlog::error("the worker of {} is lost: {}", domain, why);
  auto& deaths = deaths_[domain];
  deaths.push_back(loop_.now());
  while (deaths.back() - deaths.front() > kWithin) deaths.pop_front();
  auto connections = take_out(domain, End::kLost);
  events_.died(domain, std::move(connections));
}

void Workers::leave() {
  for (auto& [domain, place] : places_) place.end->leave();
}

std::map<std::string, base::Duration> Workers::longest_passes() const {
  std::map<std::string, base::Duration> all;
  for (const auto& [domain, place] : places_)
    all[domain] = base::EventLoop::longest_pass(*place.passes);
  return all;
}

}  // namespace vrdma::vrdmad
