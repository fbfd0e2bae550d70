// rdmacm_calls ADDRESS...: calls of rdma_cm, one case after the other, between two ends in one
// process on the vdevice that has the addresses.
// rdmacm_calls outlive ADDRESS: says "bound", and goes on when the daemon has ended its session.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace {

std::string doing;  // the case

[[noreturn]] void fail(const char* what, int line) {
  std::fprintf(stderr, "FAILED: %s: line %d: %s: %s\n", doing.c_str(), line, what,
               std::strerror(errno));
  std::_Exit(1);
}
#define CHECK(holds) ((holds) ? void() : fail(#holds, __LINE__))
#define CHECK_ERRNO(call, error) \
  (((call) == -1 && errno == (error)) ? void() : fail(#call " is not " #error, __LINE__))

struct Address {
  explicit Address(const char* text, const char* port) {
    rdma_addrinfo hints{}, *found = nullptr;
    hints.ai_flags = RAI_NUMERICHOST | RAI_PASSIVE;
    hints.ai_port_space = RDMA_PS_TCP;
    CHECK(rdma_getaddrinfo(const_cast<char*>(text), const_cast<char*>(port), &hints, &found) == 0);
    std::memcpy(&storage, found->ai_src_addr, found->ai_src_len);
    rdma_freeaddrinfo(found);
  }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  sockaddr_storage storage{};
};

ibv_qp_init_attr queue_pair(ibv_qp_type type) {
  ibv_qp_init_attr attr{};
  attr.cap.max_send_wr = attr.cap.max_recv_wr = attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  attr.sq_sig_all = 1;
  attr.qp_type = type;
  return attr;
}

// --- the synchronous calls, over each transport --------------------------------------------------

unsigned rights_of(ibv_qp* qp) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  CHECK(ibv_query_qp(qp, &attr, IBV_QP_ACCESS_FLAGS, &init) == 0);
  return attr.qp_access_flags;
}

struct Endpoint {
  Endpoint(const char* address, const char* port, int flags, rdma_port_space space,
           ibv_qp_type type) {
    rdma_addrinfo hints{}, *found = nullptr;
    hints.ai_flags = flags | RAI_NUMERICHOST;
    hints.ai_port_space = space;
    hints.ai_qp_type = type;
    CHECK(rdma_getaddrinfo(const_cast<char*>(address), const_cast<char*>(port), &hints, &found) ==
          0);
    ibv_qp_init_attr attr = queue_pair(type);
    CHECK(rdma_create_ep(&id, found, nullptr, &attr) == 0);
    rdma_freeaddrinfo(found);
  }
  ~Endpoint() { rdma_destroy_ep(id); }
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  rdma_cm_id* id = nullptr;
};

void send_a_message(const char* address, rdma_port_space space, ibv_qp_type type) {
  Endpoint listener(address, "7471", RAI_PASSIVE, space, type);
  CHECK(rdma_listen(listener.id, 1) == 0);
  std::thread server([&] {
    char buffer[16] = {};
    rdma_cm_id* id = nullptr;
    CHECK(rdma_get_request(listener.id, &id) == 0);
    ibv_mr* mr = rdma_reg_msgs(id, buffer, sizeof buffer);
    CHECK(mr != nullptr);
    CHECK(rdma_post_recv(id, nullptr, buffer, sizeof buffer, mr) == 0);
    rdma_conn_param param{};
    param.responder_resources = param.initiator_depth = 2;
    CHECK(rdma_accept(id, &param) == 0);
    ibv_wc wc{};
    CHECK(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    CHECK(std::strcmp(buffer, "hello") == 0);
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    CHECK(ibv_query_qp(id->qp, &attr, IBV_QP_STATE | IBV_QP_MAX_DEST_RD_ATOMIC, &init) == 0);
    CHECK(init.qp_type == type && attr.qp_state == IBV_QPS_RTS);
    CHECK(type != IBV_QPT_RC || attr.max_dest_rd_atomic == 2);
    CHECK(type != IBV_QPT_RC || (rights_of(id->qp) & IBV_ACCESS_REMOTE_READ) != 0);
    (void)rdma_disconnect(id);
    rdma_dereg_mr(mr);
    rdma_destroy_ep(id);
  });
  Endpoint client(address, "7471", 0, space, type);
  rdma_conn_param param{};
  param.responder_resources = param.initiator_depth = 3;
  param.retry_count = param.rnr_retry_count = 7;
  CHECK(rdma_connect(client.id, &param) == 0);
  char hello[] = "hello";
  // The program asked for no inline space; an entry has enough for this.
  CHECK(rdma_post_send(client.id, nullptr, hello, sizeof hello, nullptr, IBV_SEND_INLINE) == 0);
  ibv_wc wc{};
  CHECK(rdma_get_send_comp(client.id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
  (void)rdma_disconnect(client.id);  // each waits for the other
  server.join();
}

// --- events, handled explicitly ------------------------------------------------------------------

struct Channel {
  rdma_event_channel* channel = rdma_create_event_channel();
  Channel() { CHECK(channel != nullptr); }
  ~Channel() { rdma_destroy_event_channel(channel); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  rdma_cm_id* id(rdma_port_space space = RDMA_PS_TCP) {
    rdma_cm_id* made = nullptr;
    CHECK(rdma_create_id(channel, &made, this, space) == 0);
    return made;
  }
  [[nodiscard]] bool readable(int timeout_ms) const {
    pollfd state{channel->fd, POLLIN, 0};
    return ::poll(&state, 1, timeout_ms) == 1;
  }
  // The next event must be this; returns its id.
  rdma_cm_id* expect(rdma_cm_event_type type, int status = 0) {
    rdma_cm_event* event = nullptr;
    CHECK(readable(10'000));
    CHECK(rdma_get_cm_event(channel, &event) == 0);
    if (event->event != type || event->status != status) {
      doing += std::string(": ") + rdma_event_str(event->event) + " " +
               std::to_string(event->status) + " instead of " + rdma_event_str(type);
      fail("expect()", __LINE__);
    }
    rdma_cm_id* id = event->id;
    CHECK(rdma_ack_cm_event(event) == 0);
    return id;
  }
};

void listen_at(rdma_cm_id* id, Address& address) {
  CHECK(rdma_bind_addr(id, address.get()) == 0);
  CHECK(rdma_listen(id, 8) == 0);
}

void resolve(Channel& channel, rdma_cm_id* id, Address& address) {
  CHECK(rdma_resolve_addr(id, nullptr, address.get(), 2000) == 0);
  channel.expect(RDMA_CM_EVENT_ADDR_RESOLVED);
  CHECK(rdma_resolve_route(id, 2000) == 0);
  channel.expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
}

void ask(rdma_cm_id* id) {
  if (id->qp == nullptr) {
    ibv_qp_init_attr attr = queue_pair(IBV_QPT_RC);
    CHECK(rdma_create_qp(id, nullptr, &attr) == 0);
  }
  rdma_conn_param param{};
  param.retry_count = 7;
  CHECK(rdma_connect(id, &param) == 0);
}

void accept(rdma_cm_id* id) {
  ibv_qp_init_attr attr = queue_pair(IBV_QPT_RC);
  CHECK(rdma_create_qp(id, nullptr, &attr) == 0);
  rdma_conn_param param{};
  CHECK(rdma_accept(id, &param) == 0);
}

void destroy(rdma_cm_id* id) {
  if (id->qp != nullptr) rdma_destroy_qp(id);
  CHECK(rdma_destroy_id(id) == 0);
}

ibv_wc completion_of(ibv_cq* cq) {
  ibv_wc wc{};
  int got = 0;
  while (got == 0) got = ibv_poll_cq(cq, 1, &wc);
  CHECK(got == 1);
  return wc;
}

// Requests posted after rdma_disconnect() returns are flushed, and the peer sees nothing of them.
void nothing_after_disconnect(const char* text) {
  Address address(text, "7475");
  Channel servers, clients;
  rdma_cm_id* listener = servers.id();
  listen_at(listener, address);
  for (int round = 0; round < 5; ++round) {
    rdma_cm_id* client = clients.id();
    resolve(clients, client, address);
    ask(client);
    rdma_cm_id* server = servers.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    ibv_qp_init_attr attr = queue_pair(IBV_QPT_RC);
    attr.cap.max_recv_wr = 2;
    CHECK(rdma_create_qp(server, nullptr, &attr) == 0);
    char buffer[2][16] = {};
    ibv_mr* mr = rdma_reg_msgs(server, buffer, sizeof buffer);
    CHECK(mr != nullptr);
    for (auto& one : buffer) CHECK(rdma_post_recv(server, nullptr, one, sizeof one, mr) == 0);
    rdma_conn_param param{};
    CHECK(rdma_accept(server, &param) == 0);
    clients.expect(RDMA_CM_EVENT_ESTABLISHED);
    servers.expect(RDMA_CM_EVENT_ESTABLISHED);
    char hello[] = "hello";
    CHECK(rdma_post_send(client, nullptr, hello, 6, nullptr, IBV_SEND_INLINE) == 0);
    CHECK(completion_of(client->qp->send_cq).status == IBV_WC_SUCCESS);
    CHECK(completion_of(server->qp->recv_cq).status == IBV_WC_SUCCESS);
    CHECK(rdma_disconnect(client) == 0);
    CHECK(rdma_post_send(client, nullptr, hello, 6, nullptr, IBV_SEND_INLINE) == 0);
    CHECK(completion_of(client->qp->send_cq).status == IBV_WC_WR_FLUSH_ERR);
    servers.expect(RDMA_CM_EVENT_DISCONNECTED);
    CHECK(rdma_disconnect(server) == 0);
    CHECK(completion_of(server->qp->recv_cq).status == IBV_WC_WR_FLUSH_ERR);
    clients.expect(RDMA_CM_EVENT_DISCONNECTED);
    rdma_dereg_mr(mr);
    destroy(client);
    destroy(server);
  }
  destroy(listener);
}

// An id's unread events go with it; those of other ids stay.
void destroy_with_events(const char* text) {
  Address address(text, "7477");
  Channel channel, moved, clients;
  for (int round = 0; round < 20; ++round) {
    rdma_cm_id *gone = channel.id(), *stays = channel.id();
    CHECK(rdma_resolve_addr(gone, nullptr, address.get(), 2000) == 0);
    CHECK(channel.readable(5000));
    if (round % 2 != 0) {
      CHECK(rdma_resolve_addr(stays, nullptr, address.get(), 2000) == 0);
      destroy(gone);
      CHECK(channel.expect(RDMA_CM_EVENT_ADDR_RESOLVED) == stays);
    } else if (round % 4 != 0) {
      CHECK(rdma_migrate_id(gone, moved.channel) == 0);
      CHECK(moved.readable(5000));
      destroy(gone);
    } else {
      destroy(gone);
    }
    CHECK(!channel.readable(0) && !moved.readable(0));
    destroy(stays);
  }
  // Both ends of a connection, with its last events unread.
  rdma_cm_id* listener = channel.id();
  listen_at(listener, address);
  for (int round = 0; round < 5; ++round) {
    rdma_cm_id* client = clients.id();
    resolve(clients, client, address);
    ask(client);
    rdma_cm_id* server = channel.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    accept(server);
    clients.expect(RDMA_CM_EVENT_ESTABLISHED);
    channel.expect(RDMA_CM_EVENT_ESTABLISHED);
    CHECK(rdma_disconnect(client) == 0);
    CHECK(channel.readable(5000));
    destroy(server);
    destroy(client);
    CHECK(!channel.readable(0) && !clients.readable(0));
  }
  // A listener with requests that nobody has read: whoever asks is refused.
  std::vector<rdma_cm_id*> asking;
  for (int i = 0; i < 3; ++i) {
    asking.push_back(clients.id());
    resolve(clients, asking.back(), address);
    ask(asking.back());
  }
  CHECK(channel.readable(5000));
  destroy(listener);
  CHECK(!channel.readable(0));
  for (size_t i = 0; i < asking.size(); ++i) {
    rdma_cm_event* event = nullptr;
    CHECK(clients.readable(10'000) && rdma_get_cm_event(clients.channel, &event) == 0);
    CHECK(event->event == RDMA_CM_EVENT_REJECTED || event->event == RDMA_CM_EVENT_UNREACHABLE);
    rdma_ack_cm_event(event);
  }
  for (rdma_cm_id* id : asking) destroy(id);
  CHECK(!channel.readable(0) && !clients.readable(0));
}

// A listener uses the domain that it was given, or creates its own.
void domain_of_listener(const char* address) {
  rdma_addrinfo hints{}, *found = nullptr;
  hints.ai_flags = RAI_PASSIVE | RAI_NUMERICHOST;
  hints.ai_port_space = RDMA_PS_TCP;
  CHECK(rdma_getaddrinfo(const_cast<char*>(address), const_cast<char*>("7476"), &hints, &found) ==
        0);
  ibv_qp_init_attr attr = queue_pair(IBV_QPT_RC);
  rdma_cm_id* id = nullptr;
  CHECK(rdma_create_ep(&id, found, nullptr, &attr) == 0);
  CHECK(id->pd != nullptr);
  ibv_pd* mine = ibv_alloc_pd(id->verbs);
  CHECK(mine != nullptr);
  rdma_destroy_ep(id);
  CHECK(rdma_create_ep(&id, found, mine, nullptr) == 0);
  CHECK(id->pd == mine);
  rdma_destroy_ep(id);
  CHECK(ibv_dealloc_pd(mine) == 0);
  rdma_freeaddrinfo(found);
}

// Unread events move with the id, in order, and those of other ids stay.
void migrate_with_events(const char* text) {
  Address address(text, "7472");
  Channel one, two, clients;
  rdma_cm_id *listener = one.id(), *other = one.id();
  listen_at(listener, address);
  std::vector<rdma_cm_id*> asking;
  for (int i = 0; i < 5; ++i) {
    rdma_cm_id* id = clients.id();
    resolve(clients, id, address);
    ask(id);
    asking.push_back(id);
    // In between, an event of another id.
    if (i == 2) CHECK(rdma_resolve_addr(other, nullptr, address.get(), 2000) == 0);
  }
  CHECK(one.readable(5000));
  ::poll(nullptr, 0, 100);  // all five have arrived
  CHECK(rdma_migrate_id(listener, two.channel) == 0);
  CHECK(listener->channel == two.channel);
  CHECK(one.expect(RDMA_CM_EVENT_ADDR_RESOLVED) == other);
  CHECK(!one.readable(0));
  std::vector<rdma_cm_id*> requests;
  for (size_t i = 0; i < asking.size(); ++i) {
    rdma_cm_id* request = two.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(rdma_get_dst_port(request) == rdma_get_src_port(asking[i]));
    requests.push_back(request);
  }
  CHECK(!two.readable(0));
  // The accepted ids use another channel.
  Channel three;
  for (rdma_cm_id* request : requests) {
    CHECK(rdma_migrate_id(request, three.channel) == 0);
    accept(request);
    clients.expect(RDMA_CM_EVENT_ESTABLISHED);
    CHECK(three.expect(RDMA_CM_EVENT_ESTABLISHED) == request);
  }
  for (rdma_cm_id* id : asking) destroy(id);
  for (rdma_cm_id* request : requests) {
    three.expect(RDMA_CM_EVENT_DISCONNECTED);
    destroy(request);
  }
  destroy(other);
  destroy(listener);
}

// A child accepts a request to its parent, on a device that it opens itself.
void accept_in_a_child(const char* text) {
  Address address(text, "7474");
  Channel servers, clients;
  rdma_cm_id *listener = servers.id(), *asking = clients.id();
  listen_at(listener, address);
  resolve(clients, asking, address);
  ask(asking);
  rdma_cm_id* request = servers.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
  const pid_t child = ::fork();
  if (child == 0) {
    doing += ", in the child";
    Channel own;
    CHECK(rdma_migrate_id(request, own.channel) == 0 && request->channel == own.channel);
    accept(request);
    CHECK(own.expect(RDMA_CM_EVENT_ESTABLISHED) == request);
    CHECK(own.expect(RDMA_CM_EVENT_DISCONNECTED) == request);
    destroy(request);
    std::_Exit(0);
  }
  clients.expect(RDMA_CM_EVENT_ESTABLISHED);
  destroy(request);  // the copy
  CHECK(!clients.readable(100) && !servers.readable(0));
  CHECK(rdma_disconnect(asking) == 0);
  clients.expect(RDMA_CM_EVENT_DISCONNECTED);
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child && status == 0);
  destroy(asking);
  destroy(listener);
}

void set(rdma_cm_id* id, int option, int value) {
  auto byte = static_cast<uint8_t>(value);
  const bool small = option == RDMA_OPTION_ID_TOS || option == RDMA_OPTION_ID_ACK_TIMEOUT;
  CHECK(rdma_set_option(id, RDMA_OPTION_ID, option, small ? static_cast<void*>(&byte) : &value,
                        small ? sizeof byte : sizeof value) == 0);
}

void options(const char* text) {
  Address address(text, "7473");
  Channel channel;
  rdma_cm_id *one = channel.id(), *two = channel.id();
  CHECK(rdma_bind_addr(one, address.get()) == 0);
  CHECK_ERRNO(rdma_bind_addr(two, address.get()), EADDRINUSE);
  destroy(one);
  one = channel.id();
  set(one, RDMA_OPTION_ID_REUSEADDR, 1);
  set(two, RDMA_OPTION_ID_REUSEADDR, 1);
  CHECK(rdma_bind_addr(one, address.get()) == 0);
  CHECK(rdma_bind_addr(two, address.get()) == 0);
  CHECK_ERRNO(rdma_listen(one, 1), EADDRINUSE);
  destroy(two);
  CHECK(rdma_listen(one, 1) == 0);
  int value = 0;
  CHECK_ERRNO(rdma_set_option(one, 99, RDMA_OPTION_ID_TOS, &value, 1), ENOSYS);
  CHECK_ERRNO(rdma_set_option(one, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &value, 4), EINVAL);

  rdma_cm_id* client = channel.id();
  set(client, RDMA_OPTION_ID_TOS, 0x40);
  set(client, RDMA_OPTION_ID_ACK_TIMEOUT, 19);
  resolve(channel, client, address);
  ask(client);
  rdma_cm_id* request = channel.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
  set(request, RDMA_OPTION_ID_ACK_TIMEOUT, 21);
  accept(request);
  CHECK(channel.expect(RDMA_CM_EVENT_ESTABLISHED)->channel == channel.channel);
  channel.expect(RDMA_CM_EVENT_ESTABLISHED);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  CHECK(ibv_query_qp(client->qp, &attr, IBV_QP_AV | IBV_QP_TIMEOUT, &init) == 0);
  CHECK(attr.ah_attr.grh.traffic_class == 0x40 && attr.timeout == 19);
  CHECK(ibv_query_qp(request->qp, &attr, IBV_QP_TIMEOUT, &init) == 0);
  CHECK(attr.timeout == 21);
  CHECK((rights_of(request->qp) & IBV_ACCESS_REMOTE_WRITE) != 0);
  destroy(client);
  channel.expect(RDMA_CM_EVENT_DISCONNECTED);
  destroy(request);
  destroy(one);
}

// The wildcards of the two families.
void families() {
  Address any4("0.0.0.0", "7474"), any6("::", "7474");
  Channel channel;
  rdma_cm_id *four = channel.id(), *six = channel.id();
  CHECK_ERRNO(rdma_bind_addr(six, nullptr), EINVAL);
  CHECK(rdma_bind_addr(six, any6.get()) == 0);
  CHECK_ERRNO(rdma_bind_addr(four, any4.get()), EADDRNOTAVAIL);
  destroy(six);
  six = channel.id();
  set(six, RDMA_OPTION_ID_AFONLY, 1);
  set(four, RDMA_OPTION_ID_AFONLY, 1);
  CHECK(rdma_bind_addr(six, any6.get()) == 0);
  CHECK(rdma_bind_addr(four, any4.get()) == 0);
  CHECK(rdma_listen(six, 1) == 0 && rdma_listen(four, 1) == 0);
  destroy(six);
  destroy(four);
}

// A failed rdma_create_srq_ex leaves nothing in the id.
void shared_queue(const char* text) {
  Address address(text, "7477");
  Channel channel;
  rdma_cm_id* id = channel.id();
  CHECK(rdma_bind_addr(id, address.get()) == 0);
  ibv_srq_init_attr_ex attr{};
  attr.attr.max_wr = 8;
  attr.attr.max_sge = 1'000'000;
  attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
  attr.srq_type = IBV_SRQT_XRC;
  CHECK_ERRNO(rdma_create_srq_ex(id, &attr), EINVAL);
  CHECK(id->srq == nullptr && id->recv_cq == nullptr && id->recv_cq_channel == nullptr);
  attr.attr.max_sge = 1;
  CHECK(rdma_create_srq_ex(id, &attr) == 0);
  CHECK(attr.cq != nullptr && id->recv_cq == attr.cq);
  rdma_destroy_srq(id);
  destroy(id);
}

void groups(const char* own, const char* group) {
  Address from(own, "0"), to(group, "0");
  Channel channel;
  rdma_cm_id *one = channel.id(RDMA_PS_UDP), *two = channel.id(RDMA_PS_UDP);
  CHECK_ERRNO(rdma_join_multicast(one, to.get(), nullptr), EINVAL);
  for (rdma_cm_id* id : {one, two}) {
    CHECK(rdma_bind_addr(id, from.get()) == 0);
    ibv_qp_init_attr attr = queue_pair(IBV_QPT_UD);
    attr.cap.max_inline_data = 1U << 30;
    CHECK_ERRNO(rdma_create_qp(id, nullptr, &attr), EINVAL);
    CHECK(attr.send_cq == nullptr && attr.recv_cq == nullptr);
    attr.cap.max_inline_data = 0;
    CHECK(rdma_create_qp(id, nullptr, &attr) == 0);
  }
  CHECK_ERRNO(rdma_join_multicast(one, from.get(), nullptr), EINVAL);
  char buffer[64] = {};
  ibv_mr* mr = rdma_reg_msgs(one, buffer, sizeof buffer);
  CHECK(rdma_post_recv(one, nullptr, buffer, sizeof buffer, mr) == 0);
  ibv_ah* ah = nullptr;
  for (rdma_cm_id* id : {one, two}) {
    CHECK(rdma_join_multicast(id, to.get(), id) == 0);
    rdma_cm_event* event = nullptr;
    CHECK(rdma_get_cm_event(channel.channel, &event) == 0);
    CHECK(event->event == RDMA_CM_EVENT_MULTICAST_JOIN && event->status == 0 && event->id == id);
    const rdma_ud_param& ud = event->param.ud;
    CHECK(ud.private_data == id && ud.qp_num == 0xffffff && ud.qkey == RDMA_UDP_QKEY);
    if (id == two) ah = ibv_create_ah(two->pd, const_cast<ibv_ah_attr*>(&ud.ah_attr));
    rdma_ack_cm_event(event);
  }
  CHECK(ah != nullptr);
  const auto send = [&](const char* text) {
    ibv_wc wc{};
    CHECK(rdma_post_ud_send(two, nullptr, const_cast<char*>(text), 6, nullptr, IBV_SEND_INLINE, ah,
                            0xffffff) == 0);
    CHECK(rdma_get_send_comp(two, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
  };
  const auto receive = [&](const char* text) {
    ibv_wc wc{};
    CHECK(rdma_get_recv_comp(one, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    CHECK(std::strcmp(buffer + 40, text) == 0);
  };
  send("hello");
  receive("hello");
  CHECK(rdma_leave_multicast(one, to.get()) == 0);
  CHECK_ERRNO(rdma_leave_multicast(one, to.get()), EADDRNOTAVAIL);
  CHECK(rdma_post_recv(one, nullptr, buffer, sizeof buffer, mr) == 0);
  send("wrong");
  CHECK(rdma_join_multicast(one, to.get(), nullptr) == 0);
  channel.expect(RDMA_CM_EVENT_MULTICAST_JOIN);
  send("again");
  receive("again");
  ibv_destroy_ah(ah);
  rdma_dereg_mr(mr);
  destroy(one);
  destroy(two);
}

// The daemon ends the session of the vdevice. A new id gets a new one.
int outlive_session(const char* text) {
  doing = "outlive_session";
  Address address(text, "7473");
  Channel channel;
  rdma_cm_id* before = channel.id();
  listen_at(before, address);
  std::puts("bound");
  std::fflush(stdout);
  ibv_device_attr attr{};
  while (ibv_query_device(before->verbs, &attr) != EIO) ::usleep(20'000);
  destroy(before);
  rdma_cm_id* after = channel.id();
  CHECK(rdma_bind_addr(after, address.get()) == 0);
  ibv_qp_init_attr queues = queue_pair(IBV_QPT_RC);
  CHECK(rdma_create_qp(after, nullptr, &queues) == 0);
  destroy(after);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "outlive") == 0) return outlive_session(argv[2]);
  if (argc != 3) {
    std::fprintf(stderr, "usage: rdmacm_calls IPV4 IPV6, or rdmacm_calls outlive IPV4\n");
    return 2;
  }
  std::vector<std::pair<std::string, std::function<void()>>> cases{{"families", families}};
  for (char* const address : {argv[1], argv[2]}) {
    const std::string at = std::string(" at ") + address;
    for (const auto space : {RDMA_PS_TCP, RDMA_PS_IB})
      for (const auto type : {IBV_QPT_RC, IBV_QPT_UC})
        cases.emplace_back(
            "send_a_message " + std::to_string(space) + " " + std::to_string(type) + at,
            [=] { send_a_message(address, space, type); });
    cases.emplace_back("domain_of_listener" + at, [=] { domain_of_listener(address); });
    cases.emplace_back("nothing_after_disconnect" + at, [=] { nothing_after_disconnect(address); });
    cases.emplace_back("shared_queue" + at, [=] { shared_queue(address); });
    cases.emplace_back("options" + at, [=] { options(address); });
    cases.emplace_back("migrate_with_events" + at, [=] { migrate_with_events(address); });
    cases.emplace_back("destroy_with_events" + at, [=] { destroy_with_events(address); });
    cases.emplace_back("accept_in_a_child" + at, [=] { accept_in_a_child(address); });
  }
  cases.emplace_back("groups of IPv4", [=] { groups(argv[1], "239.1.2.3"); });
  cases.emplace_back("groups of IPv6", [=] { groups(argv[2], "ff0e::123"); });
  for (const auto& [name, run] : cases) {
    doing = name;
    run();
    std::printf("%s: passed\n", name.c_str());
    std::fflush(stdout);
  }
  return 0;
}
