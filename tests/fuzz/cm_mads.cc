// What peers and neighbours can send to queue pair 1: two hosts with connections in all states,
// between which MADs come that are forged, changed, late and double. Whatever they say, nobody
// crashes, and when all programs have gone nothing is left.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/fuzz/input.h"
#include "tests/unit/qp1mux/rig.h"

namespace {

using vrdma::fuzz::Input;
using namespace vrdma::qp1mux;  // NOLINT(google-build-using-namespace): a fuzz target of this room

struct Target : TwoHosts {
  Listener datagrams = std::move(b.listen(kDatagramService, std::nullopt, 8, &server).value());
  std::vector<std::unique_ptr<Side>> clients;
  uint8_t mood = 0;  // of the server

  void TestBody() override {}

  void command(Side& side, uint8_t which) {
    Connection& connection = side.connection;
    switch (which % 9) {
      case 0:
        return void(connection.send_rep(rep()));
      case 1:
        return void(connection.send_rtu());
      case 2:
        return void(connection.send_rej({}));
      case 3:
        return void(connection.send_dreq());
      case 4:
        return void(connection.send_drep());
      case 5:
        return void(connection.send_mra(static_cast<uint8_t>(which % 32)));
      case 6:
        return void(connection.establish());
      case 7:
        return void(connection.send_sidr_rep({}));
      default:
        return connection.reset();
    }
  }
  void begin(uint8_t which) {
    auto& side = *clients.emplace_back(std::make_unique<Side>());
    side.connection = a.connection(&side);
    side.then = [&side, which](const Event& event) {
      if (event.kind == EventKind::kRepReceived && which % 4 != 0) (void)side.connection.send_rtu();
      if (event.kind == EventKind::kDreqReceived && which % 8 != 0) side.connection.reset();
    };
    if (which % 3 == 0) {
      SidrReq question;
      question.path.local = gid_a;
      question.path.remote = gid_b;
      question.service_id = kDatagramService;
      (void)side.connection.send_sidr_req(question);
    } else {
      (void)side.connection.send_req(req());
    }
  }
  // Something that was sent before, or nothing known, with some bytes changed.
  void forge(Input& input) {
    if (rig.letters.empty()) return;
    Letter letter = rig.letters[rig.letters.size() - 1 - input.take() % rig.letters.size()];
    auto* bytes = reinterpret_cast<uint8_t*>(&letter.mad);
    for (uint8_t i = input.take() % 8; i > 0; --i) {
      const uint8_t at = input.take();
      bytes[at] = input.take();
    }
    const uint8_t how = input.take();
    if ((how & 1) != 0) letter.mad.header.attribute_id = static_cast<uint16_t>(0x10 + how / 2 % 11);
    if ((how & 2) != 0) std::swap(letter.source, letter.destination);
    if ((how & 12) == 12) letter.source = gid("10.0.0.3");
    rig.inject(letter);
  }
  void feed(Input input) {
    server.answer = [this](Side& side) { command(side, mood); };
    while (!input.empty()) {
      const uint8_t what = input.take();
      mood = input.take();
      switch (what % 6) {
        case 0:
          begin(mood);
          break;
        case 1:
        case 2:
          forge(input);
          break;
        case 3:
          rig.run(milliseconds(mood % 2 == 0 ? mood : mood * 100));
          break;
        case 4:
          if (!clients.empty()) command(*clients[input.take() % clients.size()], mood);
          break;
        default:
          if (!server.sides.empty())
            command(*server.sides[input.take() % server.sides.size()], mood);
      }
    }
    server.answer = nullptr;
    for (auto* sides : {&clients, &server.sides})
      for (const auto& side : *sides) side->connection.reset();
    rig.run(std::chrono::hours(1));
    for (const auto& side : server.sides) side->connection.reset();  // what came meanwhile
    rig.run(std::chrono::hours(1));
    if (!host_a.mux.connections().empty() || !host_b.mux.connections().empty()) std::abort();
    for (const auto& info : host_b.mux.listeners())
      if (info.waiting != 0) std::abort();
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Target target;
  target.feed(Input(data, size));
  return 0;
}
