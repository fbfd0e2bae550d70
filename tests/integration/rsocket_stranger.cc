// rsocket_stranger ADDRESS PORT: a peer of a datagram socket over RDMA that has no such socket, but
// crafts its own bytes: first valid ones, then invalid ones. The server sends back what it
// receives, and ends if it receives a message that begins with "forged".
//
// rsocket_stranger release ADDRESS PORT: opens and closes sockets, more than may exist at once.
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

namespace {

using Bytes = std::vector<uint8_t>;

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "rsocket_stranger: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

Bytes operator+(Bytes left, const Bytes& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

Bytes text(const char* words) { return {words, words + std::strlen(words)}; }

struct Address {
  Address(const char* words, const char* port) {
    four = std::strchr(words, ':') == nullptr;
    auto* in = reinterpret_cast<sockaddr_in*>(&storage);
    auto* in6 = reinterpret_cast<sockaddr_in6*>(&storage);
    storage.ss_family = four ? AF_INET : AF_INET6;
    in->sin_port = htons(static_cast<uint16_t>(std::atoi(port)));
    void* to = four ? static_cast<void*>(&in->sin_addr) : &in6->sin6_addr;
    check(inet_pton(storage.ss_family, words, to) == 1, "an address");
  }
  explicit Address(int fd) {
    socklen_t size = sizeof storage;
    check(getsockname(fd, get(), &size) == 0, "getsockname");
    four = storage.ss_family == AF_INET;
  }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  [[nodiscard]] socklen_t size() const { return four ? sizeof(sockaddr_in) : sizeof(sockaddr_in6); }
  [[nodiscard]] uint16_t port() const {
    return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
  }
  [[nodiscard]] Bytes bytes() const {
    const auto* in =
        reinterpret_cast<const uint8_t*>(&reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr);
    const auto* in6 = reinterpret_cast<const uint8_t*>(
        &reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr);
    return four ? Bytes(in, in + 4) : Bytes(in6, in6 + 16);
  }
  sockaddr_storage storage{};
  bool four = true;
};

// ---- the protocol -------------------------------------------------------------------------------

Bytes header(const Address& source, uint16_t port) {
  const auto high = static_cast<uint8_t>(port >> 8), low = static_cast<uint8_t>(port);
  if (source.four) return Bytes{4, 8, high, low} + source.bytes();
  return Bytes{6, 24, high, low, 0, 0, 0, 0} + source.bytes();
}

Bytes service(uint8_t kind, uint32_t qpn, const Address& source) {
  const auto version = static_cast<uint8_t>(source.four ? 4 : 6);
  const auto length = static_cast<uint8_t>(source.four ? 16 : 28);
  return Bytes{0x55,
               0x55,
               0x55,
               0x55,
               version,
               kind,
               length,
               0,
               0,
               static_cast<uint8_t>(qpn >> 16),
               static_cast<uint8_t>(qpn >> 8),
               static_cast<uint8_t>(qpn)} +
         source.bytes();
}

// ---- the crafted peer ---------------------------------------------------------------------------

int udp_to(Address& server) {
  const int fd = socket(server.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  check(fd >= 0 && connect(fd, server.get(), server.size()) == 0, "a socket of UDP");
  return fd;
}

void tell(int udp, const Bytes& bytes) {
  check(send(udp, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()), "send");
}

Bytes told(int udp) {
  pollfd ready{udp, POLLIN, 0};
  check(poll(&ready, 1, 20'000) == 1, "no answer by UDP");
  Bytes bytes(9000);
  const ssize_t got = recv(udp, bytes.data(), bytes.size(), 0);
  check(got >= 0, "recv");
  bytes.resize(static_cast<size_t>(got));
  return bytes;
}

class Stranger {
 public:
  Stranger(Address& server, int udp) : here_(udp), there_(server) {
    check(rdma_create_id(nullptr, &id_, nullptr, RDMA_PS_UDP) == 0, "rdma_create_id");
    Address local = here_;
    reinterpret_cast<sockaddr_in*>(&local.storage)->sin_port = 0;
    check(rdma_bind_addr(id_, local.get()) == 0, "rdma_bind_addr");
    ibv_qp_init_attr attr{};
    attr.qp_type = IBV_QPT_UD;
    attr.sq_sig_all = 1;
    attr.cap = {16, 16, 1, 1, 0};
    check(rdma_create_qp(id_, nullptr, &attr) == 0, "rdma_create_qp");
    region_ = ibv_reg_mr(id_->pd, memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE);
    check(region_ != nullptr, "ibv_reg_mr");
    ibv_ah_attr to{};
    to.is_global = 1;
    to.port_num = 1;
    to.grh.hop_limit = 64;
    to.grh.sgid_index = gid_index();
    gid_of(there_, &to.grh.dgid);
    handle_ = ibv_create_ah(id_->pd, &to);
    check(handle_ != nullptr, "ibv_create_ah");
    post();
  }
  [[nodiscard]] uint32_t qpn() const { return id_->qp->qp_num; }
  [[nodiscard]] const Address& here() const { return here_; }

  void send(const Bytes& bytes) {
    std::copy(bytes.begin(), bytes.end(), memory_.begin() + kHalf);
    ibv_sge sge{reinterpret_cast<uintptr_t>(memory_.data() + kHalf),
                static_cast<uint32_t>(bytes.size()), region_->lkey};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.wr.ud = {handle_, peer, RDMA_UDP_QKEY};
    check(ibv_post_send(id_->qp, &wr, &bad) == 0, "ibv_post_send");
    (void)completed(id_->send_cq, "nothing is sent");
  }

  // The next datagram from the server.
  Bytes receive() {
    const uint32_t length = completed(id_->recv_cq, "nothing comes");
    const Bytes bytes(memory_.begin() + sizeof(ibv_grh), memory_.begin() + length);
    post();
    return bytes;
  }

  // The server sends it back, as to a valid peer.
  void exchange(const char* words) {
    send(header(here_, here_.port()) + text(words));
    check(receive() == header(there_, there_.port()) + text(words), words);
  }

  uint32_t peer = 0;  // its queue pair

 private:
  static constexpr size_t kHalf = 8192;

  static void gid_of(const Address& address, ibv_gid* gid) {
    const Bytes bytes = address.bytes();
    if (address.four) gid->raw[10] = gid->raw[11] = 0xff;
    std::copy(bytes.begin(), bytes.end(), gid->raw + (address.four ? 12 : 0));
  }
  uint8_t gid_index() {
    ibv_gid wanted{}, gid{};
    gid_of(here_, &wanted);
    for (uint8_t index = 0; index < 16; ++index)
      if (ibv_query_gid(id_->verbs, 1, index, &gid) == 0 &&
          std::memcmp(&gid, &wanted, sizeof gid) == 0)
        return index;
    check(false, "no GID for the address");
    return 0;
  }
  void post() {
    ibv_sge sge{reinterpret_cast<uintptr_t>(memory_.data()), kHalf, region_->lkey};
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    check(ibv_post_recv(id_->qp, &wr, &bad) == 0, "ibv_post_recv");
  }
  static uint32_t completed(ibv_cq* cq, const char* otherwise) {
    ibv_wc done{};
    for (int i = 0; i < 20'000; ++i) {
      const int got = ibv_poll_cq(cq, 1, &done);
      check(got >= 0 && (got == 0 || done.status == IBV_WC_SUCCESS), "a completion");
      if (got == 1) return done.byte_len;
      usleep(1000);
    }
    check(false, otherwise);
    return 0;
  }

  Address here_, there_;
  rdma_cm_id* id_ = nullptr;
  ibv_ah* handle_ = nullptr;
  ibv_mr* region_ = nullptr;
  Bytes memory_ = Bytes(2 * kHalf);
};

uint32_t qpn_of(const Bytes& answer, const Address& server) {
  check(answer.size() == (server.four ? 16U : 28U), "the length of an answer");
  const auto qpn = static_cast<uint32_t>(answer[9] << 16 | answer[10] << 8 | answer[11]);
  check(answer == service(7, qpn, server), "an answer");
  return qpn;
}

// ---- the attacks --------------------------------------------------------------------------------

void forge_by_queue_pair(Stranger& peer, Address& server) {
  const Bytes good = header(peer.here(), peer.here().port());
  const Bytes words = text("forged");
  for (size_t at = 0; at < 2; ++at) {  // the version, the length
    for (const int value : {0, 1, 4, 5, 6, 7, 8, 9, 23, 24, 25, 127, 255}) {
      Bytes bad = good;
      bad[at] = static_cast<uint8_t>(value);
      if (bad != good) peer.send(bad + words);
    }
  }
  for (size_t length = 0; length < good.size(); ++length)
    peer.send(Bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(length)));
  peer.send(header(peer.here(), 0) + words);
  Bytes other = good;  // with the address of another host
  ++other.back();
  peer.send(other + words);
  peer.send(header(server, peer.here().port()) + words);
  peer.send((peer.here().four ? Bytes{6, 24, 1, 1} : Bytes{4, 8, 1, 1}) + Bytes(24, 1) + words);
  // A port of the same address, known to have another queue pair.
  const int udp = udp_to(server);
  const Address second(udp);
  tell(udp, service(0, peer.qpn() + 77, second) + text("of another"));
  (void)qpn_of(told(udp), server);
  peer.send(header(second, second.port()) + words);
  close(udp);
  peer.exchange("after all that");
}

void forge_by_udp(Stranger& peer, int udp) {
  const Bytes words = text("forged");
  const Bytes good = service(0, peer.qpn(), peer.here());
  for (const size_t at : {0, 1, 2, 3, 4, 6}) {  // the tag, the version, the length
    for (const int value : {0, 4, 6, 15, 16, 17, 27, 28, 29, 255}) {
      Bytes bad = good;
      bad[at] = static_cast<uint8_t>(value);
      if (bad != good) tell(udp, bad + words);
    }
  }
  for (const int kind : {1, 2, 6, 8, 255}) {
    Bytes bad = good;
    bad[5] = static_cast<uint8_t>(kind);
    tell(udp, bad + words);
  }
  for (const uint32_t qpn : {0U, 1U, 0xffffffU}) tell(udp, service(0, qpn, peer.here()) + words);
  for (size_t length = 0; length < good.size(); ++length)
    tell(udp, Bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(length)));
  tell(udp, good + words + Bytes(20'000, 7));
  peer.exchange("after that too");
}

// More peers than the server remembers.
void crowd(Stranger& peer, Address& server) {
  for (int i = 0; i < 3000; ++i) {
    const int udp = udp_to(server);
    const Address here(udp);
    tell(udp, service(7, 99, here));  // a reply without a question
    tell(udp, service(0, peer.qpn(), here) + text("one of many"));
    (void)qpn_of(told(udp), server);
    check(peer.receive() == header(server, server.port()) + text("one of many"), "of many");
    close(udp);
  }
}

// A socket that forgets its peer loses its port and must be announced again under the next one,
// even if the reply to its earlier announcement is queued.
void late_answer(Address& server) {
  const int probe = udp_to(server);
  Address here(probe);
  reinterpret_cast<sockaddr_in*>(&here.storage)->sin_port = 0;
  check(close(probe) == 0, "close");
  const int udp = socket(here.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  check(udp >= 0 && bind(udp, here.get(), here.size()) == 0, "a peer");
  Address peer(udp), from = peer;
  const auto comes = [&](char byte, const char* otherwise) {
    pollfd ready{udp, POLLIN, 0};
    check(poll(&ready, 1, 20'000) == 1, otherwise);
    Bytes bytes(100);
    socklen_t size = sizeof from.storage;
    const ssize_t got = recvfrom(udp, bytes.data(), bytes.size(), 0, from.get(), &size);
    check(got > 0 && bytes[static_cast<size_t>(got) - 1] == byte, "another message");
  };
  const int fd = rsocket(server.storage.ss_family, SOCK_DGRAM, 0);
  check(fd >= 0 && rconnect(fd, peer.get(), peer.size()) == 0, "rconnect to a peer");
  check(rsend(fd, "x", 1, 0) == 1, "rsend to a peer");
  comes('x', "the first message does not come by UDP");
  const Bytes answer = service(7, 77, peer);
  check(sendto(udp, answer.data(), answer.size(), 0, from.get(), from.size()) > 0, "sendto");
  sockaddr nobody{};
  check(rconnect(fd, &nobody, sizeof nobody) == 0, "rconnect to nobody");
  check(rsendto(fd, "y", 1, 0, peer.get(), peer.size()) == 1, "rsendto");
  comes('y', "the peer is not told of another port");
  check(rclose(fd) == 0 && close(udp) == 0, "close");
}

int count_of_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<int>(std::distance(begin(all), end(all)));
}

void release(Address& server) {
  int before = 0;
  const auto wrong = [](int done, int error, const char* what) {
    check(done == -1 && errno == error, what);
  };
  for (int i = 0; i < 1200; ++i) {
    const int fd = rsocket(server.storage.ss_family, SOCK_DGRAM, i % 2 == 0 ? 0 : IPPROTO_UDP);
    check(fd >= 0, "rsocket");
    const int depth = 20;
    check(rsetsockopt(fd, SOL_RDMA, RDMA_SQSIZE, &depth, sizeof depth) == 0, "RDMA_SQSIZE");
    check(rsetsockopt(fd, SOL_RDMA, RDMA_RQSIZE, &depth, sizeof depth) == 0, "RDMA_RQSIZE");
    const int most = 1024;  // the limit of a device
    check(rsetsockopt(fd, SOL_RDMA, RDMA_INLINE, &most, sizeof most) == 0, "RDMA_INLINE");
    check(rconnect(fd, server.get(), server.size()) == 0, "rconnect");
    wrong(rsetsockopt(fd, SOL_RDMA, RDMA_SQSIZE, &depth, sizeof depth), EINVAL, "too late");
    check(rsend(fd, "x", 1, 0) == 1, "rsend");
    if (i % 100 == 0) {
      pollfd ready{fd, POLLIN, 0};
      check(rpoll(&ready, 1, 20'000) == 1 && ready.revents == POLLIN, "rpoll");
      char byte = 0;
      check(rrecv(fd, &byte, 1, 0) == 1 && byte == 'x', "rrecv");
      wrong(rlisten(fd, 1), EOPNOTSUPP, "rlisten");
      wrong(raccept(fd, nullptr, nullptr), EOPNOTSUPP, "raccept");
      check(riomap(fd, &byte, 1, 0, 0, -1) == -1 && errno == EOPNOTSUPP, "riomap");
      sockaddr nobody{};
      check(rconnect(fd, &nobody, sizeof nobody) == 0, "rconnect to nobody");
      wrong(static_cast<int>(rsend(fd, "x", 1, 0)), EDESTADDRREQ, "rsend to nobody");
      check(rsendto(fd, "y", 1, 0, server.get(), server.size()) == 1, "rsendto");
      sockaddr_storage from{};
      socklen_t size = sizeof from;
      check(rgetsockname(fd, reinterpret_cast<sockaddr*>(&from), &size) == 0, "rgetsockname");
      check(reinterpret_cast<sockaddr_in*>(&from)->sin_port != 0, "no port any more");
      check(rpoll(&ready, 1, 20'000) == 1, "no answer without a peer");
      check(rrecvfrom(fd, &byte, 1, 0, reinterpret_cast<sockaddr*>(&from), &size) == 1 &&
                byte == 'y' && size == server.size(),
            "rrecvfrom");
      check(std::memcmp(&from, server.get(), server.size()) == 0, "another's answer");
    }
    check(rclose(fd) == 0, "rclose");
    wrong(rclose(fd), EBADF, "rclose again");
    if (i == 0) before = count_of_descriptors();
  }
  check(count_of_descriptors() == before, "descriptors are left");
}

}  // namespace

int main(int count, char** words) {
  if (count == 4 && std::strcmp(words[1], "release") == 0) {
    Address server(words[2], words[3]);
    late_answer(server);
    release(server);
    return 0;
  }
  if (count != 3) return 2;
  Address server(words[1], words[2]);
  const int udp = udp_to(server);
  Stranger peer(server, udp);
  const auto introduce = [&] {
    tell(udp, service(0, peer.qpn(), peer.here()) + text("by UDP"));
    peer.peer = qpn_of(told(udp), server);
    check(peer.receive() == header(server, server.port()) + text("by UDP"), "the first message");
    peer.exchange("by queue pair");
  };
  introduce();
  forge_by_queue_pair(peer, server);
  forge_by_udp(peer, udp);
  crowd(peer, server);
  introduce();  // because it was forgotten
  return 0;
}
