// What a tenant can send to a session socket: a vdevice on a real worker, and a client that says
// hello and then whatever the input makes of it. The worker answers or ends the session.
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/ipc/messages.h"
#include "core/ipc/socket.h"
#include "tests/unit/vrdmad/worker/furnished_worker.h"
#include "tests/unit/vrdmad/worker/parts.h"
#include "vrdmad/worker/calls.h"

namespace {

constexpr auto kCalls = static_cast<uint32_t>(vrdma::ipc::kLastCall);

using vrdma::base::Fd;
using vrdma::ipc::Reply;
using vrdma::ipc::Request;

constexpr uint64_t kVdevice = 1;

vrdma::vrdmad::FurnishedWorker& worker() {
  static auto* const instance = [] {
    auto* made = new vrdma::vrdmad::FurnishedWorker;  // lives as long as the process
    vrdma::vrdmad::AddVdevice vdevice;
    vdevice.vdevice = kVdevice;
    vdevice.name = "fuzz";
    vdevice.tenant = vdevice.fabric = "red";
    vdevice.permissions = vrdma::provisioning::Permissions::of({"raw-packet"})->bits();
    (*made)->send(parcel(std::move(vdevice), vrdma::vrdmad::new_parts()).value());
    vrdma::verbs::Gid gid;
    gid.bytes[0] = 0xfe;
    (*made)->send(vrdma::vrdmad::SetGids{kVdevice, {gid}});
    (*made)->send(vrdma::vrdmad::SetPort{kVdevice, {true, 4200, 1, std::array<uint8_t, 6>{2}}});
    return made;
  }();
  return *instance;
}

// False once the daemon has ended the session.
bool converse(int socket, Request& request, Reply* answer = nullptr) {
  if (!vrdma::ipc::send_message(socket, &request, sizeof request)) return false;
  if (request.sequence == 0) return true;  // it has no answer
  pollfd state{socket, POLLIN, 0};
  if (::poll(&state, 1, 10'000) != 1) std::abort();  // no answer and no end: it hangs
  Reply reply;
  std::vector<Fd> fds;
  const bool came = vrdma::ipc::receive(socket, &reply, &fds).has_value();
  if (answer != nullptr) *answer = reply;
  return came;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto [client, daemon] = vrdma::ipc::make_socket_pair().value();
  worker().accept(kVdevice, std::move(daemon));
  Request hello, prove;
  Reply asked;
  volatile uint64_t place = 0;
  hello.call = vrdma::ipc::Call::kHello;
  hello.sequence = 1;
  hello.hello = {reinterpret_cast<uint64_t>(&place), 1, 0};
  prove.call = vrdma::ipc::Call::kProve;
  prove.sequence = 2;
  if (size > 0 && data[0] % 8 != 0) {
    if (!converse(client.get(), hello, &asked) || asked.error != 0) std::abort();
    place = asked.challenge.challenge;
    if (data[0] % 8 != 1 && !converse(client.get(), prove, &asked)) std::abort();
  }
  while (size > 0) {
    Request request;
    const size_t count = std::min(size, sizeof request - offsetof(Request, call));
    std::memcpy(reinterpret_cast<uint8_t*>(&request) + offsetof(Request, call), data, count);
    data += count;
    size -= count;
    // Handles, sizes and enumerators are small numbers.
    auto* words = reinterpret_cast<uint32_t*>(request.bytes);
    for (size_t i = 0; i < sizeof request.bytes / sizeof *words; ++i)
      if (words[i] % 2 == 0) words[i] %= 16;
    request.call =
        static_cast<vrdma::ipc::Call>(static_cast<uint32_t>(request.call) % (kCalls + 2));
    if (request.reserved % 8 != 0) {  // mostly of a form that is taken
      const size_t used = vrdma::vrdmad::traits_of(request.call).request;
      std::memset(request.bytes + used, 0, sizeof request.bytes - used);
      request.size = sizeof request;
      request.reserved = 0;
    }
    if (!converse(client.get(), request)) break;
  }
  return 0;
}
