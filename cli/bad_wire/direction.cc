#include "cli/bad_wire/direction.h"

#include <algorithm>
#include <utility>

namespace vrdma::cli::bad_wire {

bool Direction::chance(double probability) {
  return static_cast<double>(random_() >> 11) * 0x1p-53 < probability;
}

void Direction::take(Frame frame, TimePoint now) {
  const Parts parts = parts_of(frame);
  if (!parts.is_roce && !faults_.all) {
    ++counts_.others;
    line_.emplace(now, Entry{std::move(frame), false, false, 0, {}});
    return;
  }
  ++counts_.received;
  const bool lost = chance(faults_.loss), twice = chance(faults_.duplicate);
  Fate fate;
  fate.corrupt = chance(faults_.corrupt);
  fate.mark = chance(faults_.mark);
  fate.hold = chance(faults_.reorder);
  fate.bit = random_();
  fate.jitter = Duration(
      static_cast<int64_t>(random_() % (static_cast<uint64_t>(faults_.jitter.count()) + 1)));
  if (lost) {
    ++counts_.lost;
    return;
  }
  std::optional<Frame> copy;
  if (twice) {
    ++counts_.duplicated;
    copy = frame;
  }
  send(std::move(frame), parts, fate, now);
  if (copy) send(std::move(*copy), parts, {false, false, false, 0, fate.jitter}, now);
}

void Direction::send(Frame frame, const Parts& parts, const Fate& fate, TimePoint now) {
  const bool waits = busy_ > now;
  if (faults_.rate > 0) {
    if (busy_ - now > faults_.queue) {
      ++counts_.overflowed;
      return;
    }
    busy_ = std::max(busy_, now) + Duration(frame.size() * 8 * 1'000'000'000 / faults_.rate);
  }
  if (fate.corrupt && flip_bit(frame, parts, fate.bit, faults_.right_checksum))
    ++counts_.corrupted;
  else if (fate.mark && (faults_.rate == 0 || waits) && bad_wire::mark(frame, parts))
    ++counts_.marked;
  last_ = std::max(last_, std::max(busy_, now) + faults_.delay + fate.jitter);
  line_.emplace(last_, Entry{std::move(frame), true, fate.hold, faults_.behind, {}});
}

std::optional<TimePoint> Direction::next() const {
  std::optional<TimePoint> first;
  if (!line_.empty()) first = line_.begin()->first;
  if (!held_.empty()) first = first ? std::min(*first, held_.front().until) : held_.front().until;
  return first;
}

std::optional<Frame> Direction::give(TimePoint now) {
  if (!held_.empty() && (held_.front().left == 0 || held_.front().until <= now)) {
    Frame frame = std::move(held_.front().frame);
    counts_.reordered += held_.front().left < faults_.behind ? 1 : 0;
    held_.pop_front();
    ++counts_.forwarded;
    return frame;
  }
  while (!line_.empty() && line_.begin()->first <= now) {
    Entry entry = std::move(line_.begin()->second);
    line_.erase(line_.begin());
    if (entry.held) {
      entry.until = now + kMostHeld;
      held_.push_back(std::move(entry));
      continue;
    }
    if (entry.counts) {
      ++counts_.forwarded;
      for (Entry& each : held_) each.left -= each.left > 0 ? 1 : 0;
    }
    return std::move(entry.frame);
  }
  return std::nullopt;
}

}  // namespace vrdma::cli::bad_wire
