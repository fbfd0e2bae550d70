// A raw client of the session protocol that spoils what the next daemon needs from it.
//
//   vrdma_takeover_hostile SOCKET TRICK
//
// Prints "ready" when the daemon may be killed, and waits for the next one. Exits with 0 if that
// one handled the trick; otherwise prints what it did.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iostream>

#include "core/ipc/socket.h"
#include "tests/integration/hostile/looped.h"

namespace vrdma::hostile {
namespace {

void wait_for_the_next(Looped& session, const Target& target, bool adopts) {
  std::cout << "ready" << std::endl;
  const Answer answer = session.client.resume(target.socket);
  if (adopts) {
    expect(answer.error == 0, "an honest session is not taken over");
  } else {
    expect(answer.error == ESTALE, "a session is taken over that cannot be");
  }
}

void honest(const Target& target) {
  Looped session(target);
  wait_for_the_next(session, target, true);
  session.still_works();
}

// Claims a last request, begun and unanswered, that the previous daemon never checked.
void repeated(const Target& target) {
  Looped session(target);
  const ipc::CreateQpReply qp = session.client.create_qp(session.pd, session.cq);
  verbs::QpAttributes attributes{};
  attributes.port_num = 1;
  expect(session.client.modify(qp.handle, verbs::QpState::kInit,
                               verbs::kQpPkeyIndex | verbs::kQpPort | verbs::kQpAccessFlags,
                               attributes) == 0,
         "INIT");
  attributes.path_mtu = 5;
  attributes.dest_qpn = qp.qpn;
  attributes.av.is_global = attributes.av.port_num = 1;
  expect(
      session.client.modify(qp.handle, verbs::QpState::kRtr,
                            verbs::kQpAv | verbs::kQpPathMtu | verbs::kQpDestQpn | verbs::kQpRqPsn |
                                verbs::kQpMaxDestRdAtomic | verbs::kQpMinRnrTimer,
                            attributes) == 0,
      "RTR");
  expect(session.client.call(ipc::Call::kDeallocPd, 9999).error != 0, "a PD of nobody goes");
  wait_for_the_next(session, target, true);
  ipc::Request request = request_of(ipc::Call::kModifyQp);
  --session.client.sequence();
  request.modify_qp = {};
  request.modify_qp.handle = qp.handle;
  request.modify_qp.mask = verbs::kQpState;
  request.modify_qp.rts_mask = verbs::kQpAv | verbs::kQpMaxQpRdAtomic | verbs::kQpSqPsn;
  request.modify_qp.attributes.state = static_cast<uint32_t>(verbs::QpState::kRtr);
  request.modify_qp.attributes.av.is_global = 1;
  request.modify_qp.attributes.av.sgid_index = 255;
  request.modify_qp.attributes.max_rd_atomic = 255;
  expect(session.client.call(request).error == EINVAL, "what is repeated is not checked");
  session.still_works();
}

void scribbled(const Target& target) {
  Looped session(target);
  ipc::QpBlock* const block = session.client.block(session.qp);
  session.client.arena.at<ipc::ArenaHeader>(0)->epoch = 0xdeadbeef;
  block->mark = ~0u;
  block->mark_receive = ~0u;
  block->token = ipc::token_word(ipc::Token::kAsked, 0x123456);
  block->state = 77;
  block->link = 77;
  wait_for_the_next(session, target, true);
  session.still_works();
}

// What the next daemon looks for comes behind many other descriptors.
void crowded(const Target& target) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  const auto most = std::min<rlim_t>(limit.rlim_max, 20'000) - 100;
  for (int last = 0; last >= 0 && static_cast<rlim_t>(last) < most;) last = ::fcntl(0, F_DUPFD, 0);
  Looped session(target);
  wait_for_the_next(session, target, true);
  session.still_works();
}

void doorbell(const Target& target) {
  Looped session(target);
  session.client.doorbell = base::Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  wait_for_the_next(session, target, false);
}

// Another file with the same name, size and seals.
void memory(const Target& target) {
  Looped session(target);
  base::Fd other(static_cast<int>(::memfd_create("vrdma-queues", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  expect(::ftruncate(other.get(), static_cast<off_t>(ipc::kQueueArenaSize)) == 0, "ftruncate");
  (void)::fcntl(other.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  session.client.arena_fd = std::move(other);
  wait_for_the_next(session, target, false);
}

void events(const Target& target) {
  Looped session(target);
  session.client.events_end = ipc::make_socket_pair().value().first;
  wait_for_the_next(session, target, false);
}

constexpr std::array<Attack, 7> kTricks{{{"honest", honest},
                                         {"repeated", repeated},
                                         {"scribbled", scribbled},
                                         {"crowded", crowded},
                                         {"doorbell", doorbell},
                                         {"memory", memory},
                                         {"events", events}}};

}  // namespace
}  // namespace vrdma::hostile

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  for (const auto& trick : vrdma::hostile::kTricks)
    if (std::string(trick.name) == argv[2]) {
      trick.run({argv[1]});
      return 0;
    }
  return 2;
}
