// Messages that no peer means: in the name of another, outdated or meaningless.
#pragma once

#include "tests/unit/qp1mux/rig.h"

namespace vrdma::qp1mux {

struct Foreign : TwoHosts {
  RejectReason last_rej() {
    return static_cast<RejectReason>(
        uint16_t{rig.last(CmAttribute::kRej).mad.as<wire::CmRej>().reason});
  }
  // A REQ of which its sender knows nothing: it answers nothing.
  Letter letter_of_silent(uint8_t response, const char* address = "10.0.0.66") {
    Letter letter = letter_of_req();
    letter.source = gid(address);
    auto& message = letter.mad.as<wire::CmReq>();
    message.primary.local_gid = letter.source;
    message.set_max_cm_retries(15);
    message.set_local_cm_timeout(response);
    server.answer = [this](Side& side) { EXPECT_TRUE(side.connection.send_rep(rep())); };
    return letter;
  }
  // A REQ as `ask` sends it, to be changed and injected; the host of a has no state of it.
  Letter letter_of_req() {
    rig.fate = [](const Letter&) { return std::vector<base::Duration>{}; };
    Side gone;
    ask(gone, req());
    const Letter letter = rig.last(CmAttribute::kReq);
    gone.connection.reset();
    rig.run(kMinute);
    rig.letters.clear();
    rig.fate = [](const Letter&) { return std::vector<base::Duration>{{}}; };
    return letter;
  }
  // `c`, at 10.0.0.3 on the host of b, asks b by memory. Another REQ of its queue pair, from the
  // network.
  Letter letter_of_neighbour(Endpoint& c) {
    agree();
    Req asked = req();
    asked.path.local = gid("10.0.0.3");
    client.connection = c.connection(&client);
    EXPECT_TRUE(client.connection.send_req(asked));
    rig.run(milliseconds(1));
    Letter letter = rig.last(CmAttribute::kReq);
    letter.from_network = true;
    letter.mad.as<wire::CmReq>().local_id = 0x5eed;
    letter.mad.header.transaction_id = 0x5eed;
    return letter;
  }
};

}  // namespace vrdma::qp1mux
