#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "tests/integrity/device.h"

namespace integrity {
namespace {

constexpr uint32_t kEntries = 4096;  // more than all queue pairs of a member can have outstanding
constexpr size_t kAtOnce = 16;
// In ms. An event whose completion is there has come by then.
constexpr int kLatestEvent = 20000;
constexpr int kLook = 50;

}  // namespace

Station::Station(Device* device, const Queue& plan, bool kills)
    : device_(device), plan_(plan), kills_(kills) {
  ibv_context* const context = device->context();
  if (plan.events) {
    channel_ = ibv_create_comp_channel(context);
    if (channel_ == nullptr) fail("ibv_create_comp_channel");
  }
  if (plan.extended) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = kEntries;
    attr.channel = channel_;
    attr.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM |
                    IBV_WC_EX_WITH_SRC_QP;
    extended_ = ibv_create_cq_ex(context, &attr);
    if (extended_ != nullptr) cq_ = ibv_cq_ex_to_cq(extended_);
  } else {
    cq_ = ibv_create_cq(context, kEntries, nullptr, channel_, 0);
  }
  if (cq_ == nullptr) fail("create a completion queue");
  for (unsigned i = 0; i < plan.threads; ++i)
    threads_.emplace_back([this] { plan_.events ? run_by_events() : run(); });
}

void Station::stop() {
  over_ = true;
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

Station::~Station() {
  stop();
  if (abandoned_) return;
  if (ibv_destroy_cq(cq_) != 0) fail("ibv_destroy_cq");
  if (channel_ != nullptr && ibv_destroy_comp_channel(channel_) != 0)
    fail("ibv_destroy_comp_channel");
}

void Station::resize(uint32_t entries) const {
  if (ibv_resize_cq(cq_, static_cast<int>(entries)) != 0) fail("ibv_resize_cq to %u", entries);
}

size_t Station::poll_plain(ibv_wc* to, size_t most) const {
  const int count = ibv_poll_cq(cq_, static_cast<int>(most), to);
  if (count < 0) fail("ibv_poll_cq");
  return static_cast<size_t>(count);
}

size_t Station::poll_extended(ibv_wc* to, size_t most) const {
  ibv_poll_cq_attr attr{};
  if (ibv_start_poll(extended_, &attr) != 0) return 0;
  size_t count = 0;
  do {
    ibv_wc& wc = to[count++];
    wc = {};
    wc.wr_id = extended_->wr_id;
    wc.status = extended_->status;
    wc.qp_num = ibv_wc_read_qp_num(extended_);
    if (wc.status != IBV_WC_SUCCESS) continue;
    wc.opcode = ibv_wc_read_opcode(extended_);
    wc.byte_len = ibv_wc_read_byte_len(extended_);
    wc.wc_flags = ibv_wc_read_wc_flags(extended_);
    wc.src_qp = ibv_wc_read_src_qp(extended_);
    if ((wc.wc_flags & IBV_WC_WITH_IMM) != 0) wc.imm_data = ibv_wc_read_imm_data(extended_);
    if ((wc.wc_flags & IBV_WC_WITH_INV) != 0)
      wc.invalidated_rkey = ibv_wc_read_invalidated_rkey(extended_);
  } while (count < most && ibv_next_poll(extended_) == 0);
  ibv_end_poll(extended_);
  return count;
}

bool Station::take() {
  // Where the order is checked, one thread polls and gives to the ledger at a time.
  std::unique_lock alone(gate_, std::defer_lock);
  std::shared_lock beside(gate_, std::defer_lock);
  if (plan_.ordered)
    alone.lock();
  else
    beside.lock();
  std::array<ibv_wc, kAtOnce> all;
  const size_t count =
      extended_ != nullptr ? poll_extended(all.data(), kAtOnce) : poll_plain(all.data(), kAtOnce);
  for (size_t i = 0; i < count; ++i) device_->complete(all[i], plan_.ordered);
  return count > 0;
}

bool Station::poll() { return threads_.empty() && take(); }

void Station::run() {
  while (!over_)
    if (!take()) std::this_thread::sleep_for(std::chrono::microseconds(20));
}

void Station::run_by_events() {
  ::fcntl(channel_->fd, F_SETFL, ::fcntl(channel_->fd, F_GETFL) | O_NONBLOCK);
  const auto event = [&](int milliseconds) {
    pollfd one{channel_->fd, POLLIN, 0};
    if (::poll(&one, 1, milliseconds) <= 0) return false;
    ibv_cq* of = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(channel_, &of, &context) != 0) return false;
    if (of != cq_) fail("an event of another completion queue");
    ibv_ack_cq_events(of, 1);
    ++counts().events;
    return true;
  };
  // A worker that is killed between a completion and its event leaves the event to the next one,
  // which gives none for a completion that was polled meanwhile: the queue is still armed.
  const int looks = kills_ ? kLatestEvent / kLook : 1;
  for (bool armed = false; !over_;) {
    if (!armed && ibv_req_notify_cq(cq_, 0) != 0) fail("ibv_req_notify_cq");
    armed = true;
    while (take()) {
    }
    for (int i = 0; armed && i < looks && !over_; ++i) armed = !event(kLook);
    // What has come since the queue was armed has an event.
    if (armed && !over_ && take()) {
      if (kills_ || !event(kLatestEvent)) fail("a completion comes without its event");
      armed = false;
    }
  }
}

}  // namespace integrity
