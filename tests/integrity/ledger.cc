#include "tests/integrity/ledger.h"

#include <algorithm>
#include <cinttypes>
#include <numeric>

namespace integrity {

uint64_t Counts::operations() const {
  return std::accumulate(requests.begin(), requests.end(), uint64_t{0}) + windows + datagrams_sent;
}

Counts& counts() {
  static Counts all;
  return all;
}

void Ledger::open(uint32_t qpn, unsigned link, unsigned side) {
  const std::lock_guard lock(mutex_);
  Entry entry;
  entry.link = link;
  entry.side = side;
  entries_[qpn] = std::move(entry);
}

void Ledger::close(uint32_t qpn) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(qpn);
  if (found == entries_.end()) return;
  settle(found->second, found->second.requests.size() + found->second.messages.size());
  entries_.erase(found);
}

void Ledger::begin_batch() {
  const std::lock_guard lock(mutex_);
  for (auto& [qpn, entry] : entries_) entry.completions = 0;
}

void Ledger::doubt(uint32_t qpn) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entry_of(qpn);
  settle(entry, entry.requests.size() + entry.messages.size());
  entry.is_doubtful = true;
}

uint64_t Ledger::request(uint32_t qpn, ibv_wc_opcode opcode, uint32_t length, bool signaled,
                         int kind, bool by_window) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entry_of(qpn);
  entry.requests.push_back({next_, opcode, length, signaled, kind, by_window});
  if (!entry.is_doubtful) ++outstanding_;
  return next_++;
}

uint64_t Ledger::receive(uint32_t qpn) {
  const std::lock_guard lock(mutex_);
  entry_of(qpn).receives.push_back(kReceiveBit | next_);
  return kReceiveBit | next_++;
}

void Ledger::message(uint32_t qpn, Message message) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entry_of(qpn);
  entry.messages.push_back(std::move(message));
  if (!entry.is_doubtful) ++outstanding_;
}

Ledger::Entry& Ledger::entry_of(uint32_t qpn) {
  const auto found = entries_.find(qpn);
  if (found == entries_.end()) fail("queue pair %u is unknown, or was destroyed", qpn);
  return found->second;
}

void Ledger::complete(const ibv_wc& wc, bool in_order) {
  const std::lock_guard lock(mutex_);
  ++progress_;
  Entry& entry = entry_of(wc.qp_num);
  if ((wc.wr_id & kReceiveBit) != 0)
    received(&entry, wc, in_order);
  else
    sent(&entry, wc, in_order);
}

void Ledger::sent(Entry* entry, const ibv_wc& wc, bool in_order) {
  auto& all = entry->requests;
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Request& one) { return one.name == wc.wr_id; });
  if (found == all.end())
    fail("link %u: request %" PRIu64 " completes twice, or was never posted", entry->link,
         wc.wr_id);
  const bool overtakes =
      std::any_of(all.begin(), found, [](const Request& one) { return one.signaled; });
  const Request request = *found;
  if (overtakes && in_order) fail("link %u: a completion overtakes an earlier one", entry->link);
  // Behind a success, those before it that are not signaled have succeeded. Of an error, each has a
  // completion of its own.
  const auto is_over = [&](const Request& one) {
    return one.name == request.name ||
           (wc.status == IBV_WC_SUCCESS && !one.signaled && one.name < request.name);
  };
  for (const Request& one : all)
    if (is_over(one) && one.name != request.name && one.kind >= 0)
      ++counts().requests[static_cast<size_t>(one.kind)];
  const size_t gone = std::erase_if(all, is_over);
  settle(*entry, gone);
  if (wc.status != IBV_WC_SUCCESS) {
    failed(entry, wc, &request);
    return;
  }
  if (entry->has_failed && in_order) fail("link %u: a success behind an error", entry->link);
  if (!request.signaled) fail("link %u: a request that is not signaled completes", entry->link);
  if (wc.opcode != request.opcode)
    fail("link %u: opcode %d instead of %d", entry->link, wc.opcode, request.opcode);
  if (wc.opcode == IBV_WC_RDMA_READ && wc.byte_len != request.length)
    fail("link %u: a READ of %u bytes says %u", entry->link, request.length, wc.byte_len);
  ++entry->completions;
  if (entry->is_doubtful) ++counts().done_of_ended;
  if (request.kind >= 0)
    ++counts().requests[static_cast<size_t>(request.kind)];
  else
    ++counts().windows;
}

void Ledger::received(Entry* entry, const ibv_wc& wc, bool in_order) {
  const bool shared = (wc.wr_id & kSharedBit) != 0;
  if (!shared) {
    auto& posted = entry->receives;
    const auto found = std::find(posted.begin(), posted.end(), wc.wr_id);
    if (found == posted.end()) fail("link %u: a receive completes twice", entry->link);
    if (in_order && found != posted.begin())
      fail("link %u: a receive overtakes an earlier one", entry->link);
    posted.erase(found);
  }
  if (wc.status != IBV_WC_SUCCESS) {
    if (shared) shared_->release(wc.wr_id);
    failed(entry, wc, nullptr);
    return;
  }
  const auto matches = [&](const Message& message) {
    const bool invalidates = message.kind == Kind::kSendInvalidate;
    return wc.byte_len == message.length &&
           ((wc.wc_flags & IBV_WC_WITH_IMM) != 0) == has_immediate(message.kind) &&
           ((wc.wc_flags & IBV_WC_WITH_INV) != 0) == invalidates &&
           (!has_immediate(message.kind) || wc.imm_data == message.immediate) &&
           wc.opcode ==
               (message.kind == Kind::kWriteImmediate ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
  };
  auto& all = entry->messages;
  const auto found =
      in_order ? all.begin() : std::find_if(all.begin(), all.end(), [&](const Message& message) {
        return matches(message) && (!shared || !shared_->differs(wc.wr_id, message));
      });
  if (found == all.end()) fail("link %u: a message that was never sent", entry->link);
  if (!matches(*found))
    fail(
        "link %u: a message of %u bytes, flags %u, immediate %u, where %s of %u bytes, immediate "
        "%u comes next",
        entry->link, wc.byte_len, wc.wc_flags, wc.imm_data,
        kKindNames[static_cast<size_t>(found->kind)], found->length, found->immediate);
  if (shared) {
    if (const auto at = shared_->differs(wc.wr_id, *found); at)
      fail("link %u: a message of %u bytes in the SRQ (%s): byte %zu is wrong", entry->link,
           wc.byte_len, shared_->memory(), *at);
    shared_->release(wc.wr_id);
  }
  all.erase(found);
  settle(*entry, 1);
  ++counts().receives;
}

void Ledger::failed(Entry* entry, const ibv_wc& wc, const Request* request) {
  ++counts().errors;
  if (request != nullptr) entry->has_failed = true;
  if (entry->is_doubtful) {
    ++counts().undone;
    return;
  }
  if (has_complaint_) return;
  const int kind = request == nullptr ? -1 : request->kind;
  of_atomic_ = kind >= 0 && is_atomic(static_cast<Kind>(kind));
  complaint_ = "link " + std::to_string(entry->link) + ": " +
               (request == nullptr ? "a receive"
                : kind < 0         ? "a window's request"
                                   : kKindNames[static_cast<size_t>(kind)]) +
               " of " + std::to_string(request == nullptr ? 0 : request->length) + " bytes" +
               (request != nullptr && request->by_window ? " by a window" : "") + " ends with " +
               ibv_wc_status_str(wc.status);
  has_complaint_ = true;
}

bool Ledger::is_settled(uint32_t qpn) {
  const std::lock_guard lock(mutex_);
  const Entry& entry = entry_of(qpn);
  return entry.receives.empty() &&
         std::ranges::none_of(entry.requests, [](const Request& one) { return one.signaled; });
}

size_t Ledger::completions(uint32_t qpn) {
  const std::lock_guard lock(mutex_);
  return entry_of(qpn).completions;
}

size_t Ledger::messages(uint32_t qpn) {
  const std::lock_guard lock(mutex_);
  return entry_of(qpn).messages.size();
}

size_t Ledger::requests(uint32_t qpn) {
  const std::lock_guard lock(mutex_);
  return entry_of(qpn).requests.size();
}

std::string Ledger::complaint() {
  const std::lock_guard lock(mutex_);
  return complaint_;
}

bool Ledger::is_of_atomic() {
  const std::lock_guard lock(mutex_);
  return of_atomic_;
}

std::string Ledger::outstanding() {
  const std::lock_guard lock(mutex_);
  std::string words;
  for (const auto& [qpn, entry] : entries_) {
    if (entry.requests.empty() && entry.messages.empty() && entry.receives.empty()) continue;
    words += "\n  link " + std::to_string(entry.link) + " side " + std::to_string(entry.side) +
             ": " + std::to_string(entry.requests.size()) + " requests, " +
             std::to_string(entry.messages.size()) + " messages, " +
             std::to_string(entry.receives.size()) + " receives" +
             (entry.is_doubtful ? ", ends" : "");
  }
  return words;
}

}  // namespace integrity
