// What a tenant can send to the rdma_cm socket: a program that says whatever the input makes of
// it, beside one that does as it should and must not notice. Whatever is said, nobody crashes, and
// when both have gone nothing is left.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/unit/vrdmad/cm/rig.h"

namespace {

using namespace vrdma;  // NOLINT(google-build-using-namespace): a fuzz target

constexpr uint16_t kPort = 7471;

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  vrdmad::CmRig rig;
  {
    vrdmad::CmClient evil(rig, 0), good(rig, 0), server(rig, 1);
    const uint32_t listener = server.listener(1, kPort, 4);
    (void)evil.listener(0, kPort + 1);
    (void)good.channel();
    while (size > 0) {
      // The call, and what is in the message besides: half of the words are small.
      ipc::CmRequest request;
      const size_t from = offsetof(ipc::CmRequest, call);
      const size_t count = std::min<size_t>(size, 16 + data[0] % 64);
      std::memcpy(reinterpret_cast<uint8_t*>(&request) + from, data, count);
      auto* words = reinterpret_cast<uint32_t*>(&request);
      for (size_t i = from / 4; i < 10; ++i)
        if (words[i] % 2 == 0) words[i] %= 16;
      request.call = static_cast<ipc::CmCall>(static_cast<uint32_t>(request.call) % 24);
      if (data[0] % 4 != 0) {
        request.remote = vrdmad::CmRig::address(data[0] % 2, kPort);
        request.local = vrdmad::CmRig::address(0, data[0]);
        request.value = data[0] % 8 == 1 ? vrdmad::kTcpSpace : request.value;
        request.qp_type = data[0] % 8 == 1 ? vrdmad::kRc : request.qp_type;
        request.param.qpn = data[0] % 64;
        request.param.length = static_cast<uint8_t>(request.param.length % 64);
      }
      request.quiet = data[0] % 8 == 3 ? 1 : 0;
      request.size = sizeof request;
      data += count;
      size -= count;
      if (request.quiet != 0)
        evil.send(&request, sizeof request);
      else if (evil.call(request) < 0)
        break;
      if (evil.reply.error == 0 && evil.beside.valid())
        evil.channels.emplace_back(evil.reply.handle, std::move(evil.beside));
      rig.settle(1);
    }
    const uint32_t id = good.caller(1, kPort, 63);
    uint32_t request = 0;
    while (const auto event = server.event()) {
      if (event->param.qpn == 63) request = event->request;
      // What came of the other may hold the backlog.
      if (event->request != 0 && event->param.qpn != 63)
        require(server.call(ipc::CmCall::kDestroyId, event->request) == 0);
    }
    if (request != 0) {
      require(server.with_qp(ipc::CmCall::kAccept, request, 62) == 0);
      rig.settle();
      require(good.call(ipc::CmCall::kConfirm, id) == 0);
    }
    require(server.call(ipc::CmCall::kDestroyId, listener) == 0);
  }
  rig.settle();
  for (const auto& space : rig.spaces)
    require(space->sessions.count() == 0 && space->ids.count() == 0 &&
            space->channels.count() == 0 && space->events == 0);
  return 0;
}
