#include "cli/doctor/question.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include <chrono>
#include <optional>

#include "core/verbs/socket_address.h"
#include "core/wire/cm.h"

namespace vrdma::cli::doctor {

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint16_t kDiscardPort = 9;
constexpr int kWaitMs = 6000;

// An id of a connection manager that this program is not linked with, and its events.
class Asker {
  template <class Function, class... Arguments>
  auto call(const char* name, Arguments... arguments) const {
    return reinterpret_cast<Function*>(::dlsym(library_, name))(arguments...);
  }

 public:
  explicit Asker(void* library) : library_(library) {
    channel_ = call<decltype(rdma_create_event_channel)>("rdma_create_event_channel");
    if (channel_ == nullptr) return;
    ::fcntl(channel_->fd, F_SETFL, O_NONBLOCK);
    if (call<decltype(rdma_create_id)>("rdma_create_id", channel_, &id_, nullptr, RDMA_PS_UDP) != 0)
      id_ = nullptr;
  }
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;
  ~Asker() {
    if (id_ != nullptr) (void)call<decltype(rdma_destroy_id)>("rdma_destroy_id", id_);
    if (channel_ != nullptr)
      call<decltype(rdma_destroy_event_channel)>("rdma_destroy_event_channel", channel_);
  }

  [[nodiscard]] bool resolve_address(const verbs::Gid& peer) {
    const verbs::SocketAddress to(peer, kDiscardPort, 0);
    return id_ != nullptr &&
           call<decltype(rdma_resolve_addr)>("rdma_resolve_addr", id_, nullptr,
                                             const_cast<sockaddr*>(to.get()), kWaitMs) == 0;
  }
  [[nodiscard]] bool resolve_route() {
    return call<decltype(rdma_resolve_route)>("rdma_resolve_route", id_, kWaitMs) == 0;
  }
  [[nodiscard]] bool connect() {
    rdma_conn_param request{};
    return call<decltype(rdma_connect)>("rdma_connect", id_, &request) == 0;
  }

  struct Event {
    rdma_cm_event_type kind{};
    int status = 0;
  };
  // Empty: none comes until then.
  [[nodiscard]] std::optional<Event> next(Clock::time_point until) {
    rdma_cm_event* event = nullptr;
    while (call<decltype(rdma_get_cm_event)>("rdma_get_cm_event", channel_, &event) != 0) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
      pollfd ready{channel_->fd, POLLIN, 0};
      if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left)) <= 0) return std::nullopt;
    }
    const Event copied{event->event, event->status};
    (void)call<decltype(rdma_ack_cm_event)>("rdma_ack_cm_event", event);
    return copied;
  }

 private:
  void* library_;
  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* id_ = nullptr;
};

}  // namespace

void* load_connection_manager(const std::string& libibverbs) {
  const std::string directory = libibverbs.substr(0, libibverbs.rfind('/') + 1);
  return ::dlopen((directory + "librdmacm.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
}

PeerAnswer ask(void* connection_manager, const verbs::Gid& peer) {
  const auto until = Clock::now() + std::chrono::milliseconds(kWaitMs);
  Asker asker(connection_manager);
  if (!asker.resolve_address(peer)) return PeerAnswer::kNotAsked;
  bool asked = false;
  while (const auto event = asker.next(until)) {
    switch (event->kind) {
      case RDMA_CM_EVENT_ADDR_RESOLVED:
        if (!asker.resolve_route()) return PeerAnswer::kNotAsked;
        break;
      case RDMA_CM_EVENT_ROUTE_RESOLVED:
        if (!asker.connect()) return PeerAnswer::kNotAsked;
        asked = true;
        break;
      case RDMA_CM_EVENT_ESTABLISHED:
        return PeerAnswer::kGiven;
      case RDMA_CM_EVENT_UNREACHABLE:  // its status is a SIDR_REP's, or a negative errno
        return event->status < 0 ? PeerAnswer::kNone
               : event->status == static_cast<int>(wire::SidrStatus::kReject)
                   ? PeerAnswer::kTranslated
                   : PeerAnswer::kGiven;
      default:
        return asked ? PeerAnswer::kNone : PeerAnswer::kNotAsked;
    }
  }
  return asked ? PeerAnswer::kNone : PeerAnswer::kNotAsked;
}

}  // namespace vrdma::cli::doctor
