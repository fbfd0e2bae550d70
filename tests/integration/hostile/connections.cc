// Requests to the rdma_cm socket: content, number and timing.
#include "tests/integration/hostile/connections.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <memory>

#include "core/ipc/socket.h"
#include "tests/integration/hostile/attack.h"
#include "tests/integration/hostile/client.h"

namespace vrdma::hostile {

using ipc::CmCall;

CmClient::CmClient(const std::string& session_socket)
    : socket_(dial(session_socket.substr(0, session_socket.rfind('/') + 1) + ipc::kCmSocket)) {}

void CmClient::send(const void* data, size_t size, const std::vector<int>& with) {
  (void)ipc::send_message(socket_.get(), data, size, with);
}

void CmClient::ask(ipc::CmRequest& request) {
  request.sequence = ++sequence_;
  send(&request, sizeof request);
}

int CmClient::answer() {
  pollfd state{socket_.get(), POLLIN, 0};
  if (::poll(&state, 1, 10'000) <= 0) failed("the daemon does not answer at the rdma_cm socket");
  return ipc::receive(socket_.get(), &reply, &fds) ? reply.error : -1;
}

int CmClient::call(ipc::CmRequest& request) {
  ask(request);
  const int error = answer();
  expect(error < 0 || reply.sequence == request.sequence, "an answer to another request");
  return error;
}

bool CmClient::tell(ipc::CmRequest& request) {
  request.sequence = ++sequence_;
  request.quiet = 1;
  return ipc::send_message(socket_.get(), &request, sizeof request).has_value();
}

int CmClient::call(CmCall which, uint32_t handle, uint32_t value) {
  ipc::CmRequest request;
  request.call = which;
  request.handle = handle;
  request.value = value;
  return call(request);
}

bool CmClient::ended(int timeout_ms) {
  for (; timeout_ms > 0; timeout_ms -= 50) {
    pollfd state{socket_.get(), POLLRDHUP, 0};
    if (::poll(&state, 1, 50) > 0 && (state.revents & (POLLRDHUP | POLLHUP)) != 0) return true;
  }
  return false;
}

uint32_t CmClient::channel() {
  expect(call(CmCall::kCreateChannel) == 0, "kCreateChannel");
  return reply.handle;
}

uint32_t CmClient::id(uint32_t channel, uint32_t qp_type) {
  ipc::CmRequest request;
  request.call = CmCall::kCreateId;
  request.channel = channel;
  request.handle = ++last_id_ | ipc::kCmOwnHandle;
  request.space = qp_type == 4 ? 0x111 : 0x106;
  request.qp_type = qp_type;
  expect(call(request) == 0, "kCreateId");
  return reply.handle;
}

ipc::CmRequest CmClient::to_resolve(uint32_t id, const std::string& ipv4, uint16_t port) {
  ipc::CmRequest request;
  request.call = CmCall::kResolveAddr;
  request.handle = id;
  request.remote.gid[10] = request.remote.gid[11] = 0xff;
  ::inet_pton(AF_INET, ipv4.c_str(), request.remote.gid + 12);
  request.remote.port = port;
  return request;
}

int CmClient::resolve(uint32_t id, const std::string& ipv4, uint16_t port) {
  ipc::CmRequest request = to_resolve(id, ipv4, port);
  return call(request);
}

namespace {

constexpr const char* kVictim = "10.0.0.1";
constexpr int kCalls = 32;  // more than exist

void cm_wrong_messages(const Target& target) {
  // Of the daemon's own version: it cannot know the sizes of another version.
  std::vector<char> bytes(9000);
  const ipc::CmRequest sound;
  std::memcpy(bytes.data(), &sound, offsetof(ipc::CmRequest, size));
  for (const size_t size : {size_t{1}, size_t{4}, sizeof(ipc::CmRequest) - 1,
                            sizeof(ipc::CmRequest) + 1, bytes.size()}) {
    CmClient client(target.socket);
    client.send(bytes.data(), size);
    expect(client.ended(), "a message of a wrong size does not end a session of rdma_cm");
  }
  CmClient magic(target.socket), descriptor(target.socket), version(target.socket);
  ipc::CmRequest request;
  request.version = 99;
  expect(version.call(request) == EPROTONOSUPPORT, "another version is not refused");
  request.magic = 0;
  magic.send(&request, sizeof request);
  expect(magic.ended(), "another magic does not end a session of rdma_cm");
  request = {};
  descriptor.send(&request, sizeof request, {0});
  expect(descriptor.ended(), "a descriptor does not end a session of rdma_cm");
}

void cm_every_handle(const Target& target) {
  CmClient other(target.socket), client(target.socket);
  const uint32_t channel = other.channel();
  const uint32_t id = other.id(channel);
  const uint32_t own = client.channel();  // may have the same number
  for (int call = 1; call < kCalls; ++call) {
    const auto which = static_cast<CmCall>(call);
    if (which == CmCall::kCreateChannel || which == CmCall::kCreateId ||
        which == CmCall::kDevices || which == CmCall::kDevice || which == CmCall::kNudge)
      continue;
    const int refusal = which == CmCall::kResume ? ESTALE : EINVAL;
    for (const uint32_t handle : {0u, channel, id, id + 1, 1000u, 1u << 31, ~0u}) {
      if (which == CmCall::kDestroyChannel && handle == own) continue;
      expect(client.call(which, handle) == refusal,
             "call " + std::to_string(call) + " of rdma_cm takes handle " + std::to_string(handle));
    }
  }
  expect(other.resolve(id, kVictim, 7) == 0, "another's id was disturbed");
}

void cm_random_requests(const Target& target) {
  Random random(target.seed);
  for (int session = 0; session < 20; ++session) {
    CmClient client(target.socket);
    const uint32_t channel = client.channel();
    for (int i = 0; i < 8; ++i) (void)client.id(channel, i % 2 == 0 ? 2 : 4);
    for (int i = 0; i < 1000; ++i) {
      ipc::CmRequest request;
      auto* bytes = reinterpret_cast<uint8_t*>(&request);
      for (size_t at = offsetof(ipc::CmRequest, handle); at < sizeof request; ++at)
        bytes[at] = static_cast<uint8_t>(random() % 3 == 0 ? random() : 0);
      request.call = static_cast<CmCall>(random() % kCalls);
      request.handle = random() % 12;
      request.channel = random() % 3;
      request.quiet = 0;
      request.value %= random() % 2 == 0 ? 16 : 1u << 16;
      if (random() % 2 == 0) {
        std::memset(request.remote.gid, 0, sizeof request.remote.gid);
        request.remote.gid[10] = request.remote.gid[11] = 0xff;
        ::inet_pton(AF_INET, kVictim, request.remote.gid + 12);
      }
      if (client.call(request) < 0) failed("a request of the right size ends the session");
    }
  }
}

void cm_many_sessions(const Target& target) {
  std::vector<std::unique_ptr<CmClient>> clients;
  bool refused = false;
  for (int i = 0; i < 1200 && !refused; ++i) {
    clients.push_back(std::make_unique<CmClient>(target.socket));
    refused = clients.back()->call(CmCall::kDevices) < 0;
  }
  expect(refused, "a namespace has any number of sessions of rdma_cm");
}

void cm_many_channels(const Target& target) {
  std::vector<std::unique_ptr<CmClient>> clients;
  int error = 0;
  for (int i = 0; i < 40 && error == 0; ++i) {
    clients.push_back(std::make_unique<CmClient>(target.socket));
    for (int k = 0; k < 1000 && error == 0; ++k) {
      error = clients.back()->call(CmCall::kCreateChannel);
      if (!clients.back()->fds.empty() && k % 2 == 0) continue;
      clients.back()->fds.clear();  // closed: no process holds it
    }
  }
  expect(error == EMFILE || error == 0, "a channel is refused for another reason");
}

void cm_many_ids(const Target& target) {
  CmClient client(target.socket);
  const uint32_t channel = client.channel();
  int error = 0;
  uint32_t made = 0;
  ipc::CmRequest request;
  request.call = CmCall::kCreateId;
  request.channel = channel;
  request.space = 0x106;
  request.qp_type = 2;
  const auto next = [&]() -> ipc::CmRequest& {
    request.handle = made | ipc::kCmOwnHandle;
    return request;
  };
  for (; made < 60'000; ++made) expect(client.tell(next()), "ids end the session");
  request.quiet = 0;
  while (error == 0 && made < 200'000) {
    error = client.call(next());
    made += error == 0 ? 1 : 0;
  }
  expect(error == ENOMEM && (made >= 65536 || !target.alone), "ids are not bounded, or too few");
}

// Unread events and unread replies.
void cm_unread(const Target& target) {
  CmClient client(target.socket);
  const uint32_t id = client.id(client.channel());
  ipc::CmRequest resolve = CmClient::to_resolve(id, "10.99.99.99", 1);
  for (int i = 0; i < 200'000 && client.tell(resolve); ++i) continue;
  expect(client.ended(), "events that nobody reads are kept for ever");
  CmClient deaf(target.socket);
  ipc::CmRequest request;
  request.call = CmCall::kDevices;
  for (int i = 0; i < 5000; ++i) deaf.send(&request, sizeof request);
  expect(deaf.ended(), "answers that nobody reads are kept for ever");
}

// As many requests as possible, to a vdevice without a listener.
void cm_flood(const Target& target) {
  CmClient client(target.socket);
  const uint32_t channel = client.channel();
  for (int i = 0; i < 3000; ++i) {
    const uint32_t id = client.id(channel, 4);
    expect(client.resolve(id, kVictim, 7) == 0, "kResolveAddr");
    (void)client.call(CmCall::kResolveRoute, id);
    ipc::CmRequest connect;
    connect.call = CmCall::kConnect;
    connect.handle = id;
    const int error = client.call(connect);
    expect(error == 0 || error == EAGAIN, "a request for a datagram service is refused");
    if (i % 2 == 0) (void)client.call(CmCall::kDestroyId, id);
    ipc::CmEventMessage event;
    while (::recv(client.fds[0].get(), &event, sizeof event, MSG_DONTWAIT) > 0) {
    }
  }
}

// A queue pair that is not the vdevice's, and addresses of others.
void cm_forged(const Target& target) {
  CmClient client(target.socket);
  const uint32_t channel = client.channel();
  const uint32_t id = client.id(channel);
  expect(client.resolve(id, kVictim, 7) == 0, "kResolveAddr");
  (void)client.call(CmCall::kResolveRoute, id);
  ipc::CmRequest connect;
  connect.call = CmCall::kConnect;
  connect.handle = id;
  for (const uint32_t qpn : {0u, 1u, 2u, 17u, 0xffffffu}) {
    connect.param.qpn = qpn;
    expect(client.call(connect) == EPERM, "a foreign queue pair is taken");
  }
  ipc::CmRequest bind;
  bind.call = CmCall::kBind;
  bind.handle = client.id(channel);
  bind.local.gid[10] = bind.local.gid[11] = 0xff;
  ::inet_pton(AF_INET, kVictim, bind.local.gid + 12);
  expect(client.call(bind) == ENODEV, "a foreign address is bound");
}

void cm_closing_in_the_middle(const Target& target) {
  for (int i = 0; i < 200; ++i) {
    CmClient client(target.socket);
    const uint32_t id = client.id(client.channel(), 4);
    ipc::CmRequest request;
    request.handle = id;
    const CmCall calls[] = {CmCall::kResolveAddr, CmCall::kResolveRoute, CmCall::kConnect,
                            CmCall::kDisconnect};
    (void)client.resolve(id, kVictim, 7);
    for (int k = 1; k <= i % 4; ++k) {
      request.call = calls[k];
      client.send(&request, sizeof request);
    }
    if (i % 3 == 0) client.fds.clear();
  }
}

// Listens on every port, and connects to itself without accepting.
void cm_nobody_accepts(const Target& target) {
  CmClient client(target.socket);
  const uint32_t channel = client.channel();
  ipc::CmRequest request;
  uint32_t listeners = 0;
  for (uint16_t port = 1; port < 1500; ++port) {
    request = {};
    request.call = CmCall::kBind;
    request.handle = client.id(channel, 4);
    request.local.port = port;
    if (client.call(request) != 0) continue;
    if (client.call(CmCall::kListen, request.handle, ~0u) == 0) ++listeners;
  }
  expect(listeners > 0, "nobody can listen");
  for (int i = 0; i < 500; ++i) {
    const uint32_t id = client.id(channel, 4);
    expect(client.resolve(id, "10.0.1.3", 7) == 0, "kResolveAddr");
    (void)client.call(CmCall::kResolveRoute, id);
    (void)client.call(CmCall::kConnect, id);
    ipc::CmEventMessage event;
    while (::recv(client.fds[0].get(), &event, sizeof event, MSG_DONTWAIT) > 0) {
    }
  }
}

// Calls in an invalid order.
void cm_out_of_turn(const Target& target) {
  CmClient client(target.socket);
  const uint32_t channel = client.channel();
  for (const CmCall call : {CmCall::kConfirm, CmCall::kReject, CmCall::kDisconnect,
                            CmCall::kEstablish, CmCall::kAccept, CmCall::kConnect}) {
    const uint32_t id = client.id(channel);
    expect(client.call(call, id) != 0, "a call that makes no sense is obeyed");
    expect(client.resolve(id, kVictim, 7) == 0, "kResolveAddr");
    if (call != CmCall::kConnect)
      expect(client.call(call, id) != 0, "a call that makes no sense is obeyed");
    expect(client.call(CmCall::kDestroyId, id) == 0, "kDestroyId");
    expect(client.call(call, id) == EINVAL, "an id is used when it is destroyed");
  }
}

}  // namespace

std::vector<Attack> connection_attacks() {
  return {
      {"cm_wrong_messages", cm_wrong_messages},
      {"cm_every_handle", cm_every_handle},
      {"cm_random_requests", cm_random_requests},
      {"cm_many_sessions", cm_many_sessions},
      {"cm_many_channels", cm_many_channels, true},
      {"cm_many_ids", cm_many_ids, true},
      {"cm_unread", cm_unread, true},
      {"cm_flood", cm_flood},
      {"cm_forged", cm_forged},
      {"cm_nobody_accepts", cm_nobody_accepts},
      {"cm_out_of_turn", cm_out_of_turn},
      {"cm_closing_in_the_middle", cm_closing_in_the_middle},
  };
}

}  // namespace vrdma::hostile
