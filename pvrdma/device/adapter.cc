#include "pvrdma/device/adapter.h"

#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tuple>

#include "client/verbs/shortcuts.h"

namespace vrdma::pvrdma {

namespace {

bool make_nonblocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

bool is_same(const ibv_gid& a, const ibv_gid& b) {
  return std::memcmp(a.raw, b.raw, sizeof a.raw) == 0;
}

bool is_same(const ibv_ah_attr& a, const ibv_ah_attr& b) {
  const auto rest = [](const ibv_ah_attr& one) {
    return std::tuple(one.grh.sgid_index, one.grh.hop_limit, one.grh.traffic_class,
                      one.grh.flow_label, one.sl, one.is_global, one.port_num);
  };
  return is_same(a.grh.dgid, b.grh.dgid) && rest(a) == rest(b);
}

// The device of that name, or the only one.
base::Result<Owned<ibv_context>> open_named(const std::string& name) {
  int count = 0;
  const std::unique_ptr<ibv_device*, decltype(&::ibv_free_device_list)> list(
      ::ibv_get_device_list(&count), &::ibv_free_device_list);
  if (list == nullptr || count == 0)
    return base::fail(ENODEV,
                      "there is no vdevice in this network namespace; vrdmactl doctor says why");
  std::string names;
  for (int i = 0; i < count; ++i) {
    const char* const one = ::ibv_get_device_name(list.get()[i]);
    names += std::string(names.empty() ? "" : ", ") + one;
    if (name.empty() ? count > 1 : name != one) continue;
    Owned<ibv_context> context(::ibv_open_device(list.get()[i]));
    if (context == nullptr) return base::fail_errno(std::string("open ") + one);
    return context;
  }
  if (name.empty()) return base::fail(EINVAL, "which device? There are " + names);
  return base::fail(ENODEV, "there is no device " + name + " here; there is " + names);
}

}  // namespace

base::Result<std::unique_ptr<Adapter>> Adapter::open(base::EventLoop& loop,
                                                     const std::string& name) {
  std::unique_ptr<Adapter> adapter(new Adapter);
  auto context = open_named(name);
  if (!context) return base::pass(std::move(context.error()));
  adapter->context_ = std::move(*context);
  ibv_context* const opened = adapter->context();
  if (const int error = ::ibv_query_device(opened, &adapter->attributes_); error != 0)
    return base::fail_errno("query the device", error);
  adapter->channel_.reset(::ibv_create_comp_channel(opened));
  if (adapter->channel_ == nullptr) return base::fail_errno("create a completion channel");
  if (!make_nonblocking(adapter->channel_->fd) || !make_nonblocking(opened->async_fd))
    return base::fail_errno("make the device's events non-blocking");
  if (const auto* const library = client::shortcuts_of(opened); library != nullptr)
    adapter->export_state_ = library->export_state(opened);
  Adapter* const self = adapter.get();
  auto completions =
      loop.watch(adapter->channel_->fd, EPOLLIN, [self](uint32_t) { self->take_completions(); });
  if (!completions) return base::pass(std::move(completions.error()));
  auto events = loop.watch(opened->async_fd, EPOLLIN, [self](uint32_t) { self->take_events(); });
  if (!events) return base::pass(std::move(events.error()));
  adapter->completions_watch_ = std::move(*completions);
  adapter->events_watch_ = std::move(*events);
  return adapter;
}

int Adapter::view(std::span<const int> files) {
  const auto* const library = client::shortcuts_of(context());
  return library != nullptr ? library->show_memory(context(), files) : ENOTSUP;
}

ibv_mr* Adapter::reg_mr(ibv_pd* pd, uint8_t* addr, uint64_t length, uint64_t iova,
                        unsigned int access, bool shown) const {
  if (!shown) return ::ibv_reg_mr_iova(pd, addr, length, iova, access);
  return client::shortcuts_of(context())->reg_shown_mr(pd, addr, length, iova, access);
}

std::optional<ibv_port_attr> Adapter::port() const {
  ibv_port_attr port{};
  if (::ibv_query_port(context(), 1, &port) != 0) return std::nullopt;
  return port;
}

void Adapter::read_gids() {
  if (gids_known_) return;
  gids_.clear();
  const auto now = port();
  if (!now) return;
  for (int i = 0; i < now->gid_tbl_len && i <= UINT8_MAX; ++i) {
    ibv_gid gid{};
    if (::ibv_query_gid(context(), 1, i, &gid) != 0) break;
    gids_.push_back(gid);
  }
  gids_known_ = true;
}

// A GID that is not known yet may have come since.
std::optional<uint8_t> Adapter::index_of(const ibv_gid& gid) {
  const auto look = [&]() -> std::optional<uint8_t> {
    read_gids();
    for (size_t i = 0; i < gids_.size(); ++i)
      if (is_same(gids_[i], gid)) return static_cast<uint8_t>(i);
    return std::nullopt;
  };
  if (const auto found = look(); found) return found;
  gids_known_ = false;
  return look();
}

std::optional<ibv_gid> Adapter::gid(uint8_t index) {
  read_gids();
  if (index >= gids_.size()) return std::nullopt;
  return gids_[index];
}

void Adapter::take_completions() {
  ibv_cq* cq = nullptr;
  void* unused = nullptr;
  for (int i = 0; i < 64 && ::ibv_get_cq_event(channel(), &cq, &unused) == 0; ++i) {
    ::ibv_ack_cq_events(cq, 1);
    if (events_ != nullptr) events_->on_completions(cq);
  }
}

void Adapter::take_events() {
  ibv_async_event event{};
  for (int i = 0; i < 64 && ::ibv_get_async_event(context(), &event) == 0; ++i) {
    if (event.event_type == IBV_EVENT_GID_CHANGE) gids_known_ = false;
    if (events_ != nullptr) events_->on_event(event);
    ::ibv_ack_async_event(&event);
  }
}

ibv_ah* AddressHandles::find(const ibv_ah_attr& attr) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& one) { return is_same(one.attr, attr); });
  if (found != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, found);
    return found->ah.get();
  }
  ibv_ah_attr copy = attr;
  Owned<ibv_ah> made(::ibv_create_ah(pd_, &copy));
  if (made == nullptr) return nullptr;
  if (entries_.size() >= kMost) evict_oldest();
  entries_.push_front({attr, std::move(made)});
  return entries_.front().ah.get();
}

}  // namespace vrdma::pvrdma
