// Asynchronous events that are not errors of a request.
#include <arpa/inet.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/conformance/errors.h"

namespace conformance {

namespace {

// Whether the GID table has this IPv4 address.
bool has_gid(const Side& side, const char* address) {
  in_addr wanted{};
  CHECK_EQ(::inet_pton(AF_INET, address, &wanted), 1);
  ibv_port_attr port{};
  CHECK_EQ(ibv_query_port(side.context, 1, &port), 0);
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    ibv_gid gid{};
    CHECK_EQ(ibv_query_gid(side.context, 1, i, &gid), 0);
    if (std::memcmp(gid.raw + 12, &wanted, 4) == 0 && gid.raw[10] == 0xff && gid.raw[0] == 0)
      return true;
  }
  return false;
}

ibv_port_state port_state(const Side& side) {
  ibv_port_attr port{};
  CHECK_EQ(ibv_query_port(side.context, 1, &port), 0);
  return port.state;
}

}  // namespace

CONFORMANCE_TEST(errors, last_wqe_reached) {
  Cq cq(side);
  Srq srq(side, 8);
  QpOptions options;
  options.srq = srq.srq;
  Qp qp(side, cq, options);
  Buffer buffer(side, 4096);
  srq.receive(1, {buffer.sge(0, 64)});
  for (int round = 0; round < 2; ++round) {
    qp.connect();
    qp.to(IBV_QPS_ERR);
    CHECK(expect_async_event(side, IBV_EVENT_QP_LAST_WQE_REACHED) == qp.qp);
    // Shared receives belong to all: they are not flushed.
    cq.expect_none(20);
    side.meet(1);
    qp.to(IBV_QPS_RESET);
    side.meet(2);
  }
}

// They are destroyed with their object: the next queue pair has none of them, and no event can be
// read.
CONFORMANCE_TEST(errors, unread_events_of_the_destroyed) {
  pollfd async{side.context->async_fd, POLLIN, 0};
  Srq srq(side, 8);
  QpOptions options;
  options.srq = srq.srq;
  for (int round = 0; round < 2; ++round) {
    Cq cq(side, true);
    {
      Qp other(side, cq);
      other.connect();
      pollfd told{cq.channel->fd, POLLIN, 0};
      CHECK_EQ(::poll(&told, 1, 0), 0);
      {
        Qp qp(side, cq, options);
        qp.connect();
        qp.to(IBV_QPS_ERR);
        CHECK_EQ(::poll(&async, 1, 10'000), 1);
      }
      CHECK_EQ(::poll(&async, 1, 0), 0);
      // Destroys one of two queues that share a channel.
      ibv_cq* second = ibv_create_cq(side.context, 8, nullptr, cq.channel, 0);
      CHECK(second != nullptr);
      ibv_qp* flushed = failed_qp(side, second, 1);
      CHECK_EQ(ibv_req_notify_cq(second, 0), 0);
      ibv_recv_wr receive{}, *bad = nullptr;
      CHECK_EQ(ibv_post_recv(flushed, &receive, &bad), 0);
      CHECK_EQ(::poll(&told, 1, 10'000), 1);
      CHECK_EQ(ibv_destroy_qp(flushed), 0);
      CHECK_EQ(ibv_destroy_cq(second), 0);
      CHECK_EQ(::poll(&told, 1, 0), 0);
    }
    side.meet(round);
  }
}

// The numbers of destroyed objects are given again while other threads still destroy them.
CONFORMANCE_TEST(errors, threads_that_create_and_destroy) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < 300; ++round) {
        Cq cq(side, true, 8);
        ibv_qp* flushed = failed_qp(side, cq.cq, 1);
        cq.arm();
        ibv_recv_wr receive{}, *bad = nullptr;
        CHECK_EQ(ibv_post_recv(flushed, &receive, &bad), 0);
        CHECK(cq.has_event(10'000));
        cq.await_event();
        CHECK_EQ(ibv_destroy_qp(flushed), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

CONFORMANCE_TEST(errors, shared_receive_queue_limit) {
  Cq cq(side);
  Srq srq(side, 16);
  QpOptions options;
  if (!side.is_a()) options.srq = srq.srq;
  {
    Qp qp(side, cq, options);
    Buffer buffer(side, 4096);
    qp.connect();
    for (int round = 0; round < 2; ++round) {
      if (side.is_a()) {
        side.await_word(1);
        for (uint64_t id = 0; id < 7; ++id) {
          qp.send(id, {buffer.sge(0, 8)});
          cq.expect(id);
          side.tell_word(2);
          side.await_word(3);
        }
      } else {
        for (uint64_t id = 0; id < 10; ++id) srq.receive(id, {buffer.sge(0, 64)});
        ibv_srq_attr attr{};
        attr.srq_limit = 5;
        CHECK_EQ(ibv_modify_srq(srq.srq, &attr, IBV_SRQ_LIMIT), 0);
        CHECK_EQ(ibv_query_srq(srq.srq, &attr), 0);
        CHECK_EQ(attr.srq_limit, 5u);
        side.tell_word(1);
        for (uint64_t id = 0; id < 7; ++id) {
          side.await_word(2);
          CHECK_EQ(static_cast<int>(cq.wait().status), 0);
          // 10 were posted: with the sixth, fewer than 5 are left. Reported once.
          if (id == 5)
            CHECK(expect_async_event(side, IBV_EVENT_SRQ_LIMIT_REACHED) ==
                  static_cast<void*>(srq.srq));
          else
            expect_no_async_event(side, 10);
          side.tell_word(3);
        }
        CHECK_EQ(ibv_query_srq(srq.srq, &attr), 0);
        CHECK_EQ(attr.srq_limit, 0u);
        // The remaining ones make room for the next round.
        for (int i = 0; i < 3; ++i) side.tell_word(4);
      }
      if (side.is_a())
        for (uint64_t id = 0; id < 3; ++id) {
          side.await_word(4);
          qp.send(id, {buffer.sge(0, 8)});
          cq.expect(id);
        }
      else
        for (int i = 0; i < 3; ++i) CHECK_EQ(static_cast<int>(cq.wait().status), 0);
      side.meet(5);
    }
  }
}

// An event keeps its object until it is acknowledged.
CONFORMANCE_TEST(errors, event_holds_its_object) {
  Cq cq(side);
  Srq srq(side, 8);
  QpOptions options;
  options.srq = srq.srq;
  auto* qp = new Qp(side, cq, options);
  qp->connect();
  qp->to(IBV_QPS_ERR);
  ibv_async_event event{};
  CHECK_EQ(ibv_get_async_event(side.context, &event), 0);
  CHECK(event.element.qp == qp->qp);
  std::atomic<bool> destroyed = false;
  std::thread destroyer([&] {
    delete qp;
    destroyed = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(!destroyed.load());
  ibv_ack_async_event(&event);
  destroyer.join();
  side.meet(1);
}

CONFORMANCE_TEST(errors, addresses_come_and_go) {
  const char* address = side.is_a() ? "10.0.0.71" : "10.0.0.72";
  for (int round = 0; round < 3; ++round) {
    CHECK(!has_gid(side, address));
    side.errand(std::string("address add ") + address + "/24");
    expect_async_event(side, IBV_EVENT_GID_CHANGE);
    CHECK(has_gid(side, address));
    side.errand(std::string("address delete ") + address + "/24");
    expect_async_event(side, IBV_EVENT_GID_CHANGE);
    CHECK(!has_gid(side, address));
  }
  side.meet(1);
}

// Queue pairs that do not use the address continue.
CONFORMANCE_TEST(errors, traffic_outlives_other_addresses) {
  Breakable pair(side);
  const char* address = side.is_a() ? "10.0.0.73" : "10.0.0.74";
  side.errand(std::string("address add ") + address + "/24");
  expect_async_event(side, IBV_EVENT_GID_CHANGE);
  side.errand(std::string("address delete ") + address + "/24");
  expect_async_event(side, IBV_EVENT_GID_CHANGE);
  side.meet(1);
  CHECK_EQ(static_cast<int>(pair.qp.state()), static_cast<int>(IBV_QPS_RTS));
  pair.mend();
}

// a's link goes down and up again, and so does the carrier of b's.
CONFORMANCE_TEST(errors, links_go_down_and_up) {
  side.meet(3);  // both have found an active port
  for (int round = 0; round < 2; ++round) {
    if (side.is_a()) side.errand("link down");
    expect_async_event(side, IBV_EVENT_PORT_ERR, IBV_EVENT_GID_CHANGE);
    CHECK_EQ(static_cast<int>(port_state(side)), static_cast<int>(IBV_PORT_DOWN));
    side.meet(1);
    if (side.is_a()) side.errand("link up");
    expect_async_event(side, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_GID_CHANGE);
    CHECK_EQ(static_cast<int>(port_state(side)), static_cast<int>(IBV_PORT_ACTIVE));
    side.meet(2);
  }
}

// As on an unplugged adapter: posted requests, direct ones too, wait for as long as for a peer that
// does not answer.
CONFORMANCE_TEST(errors, requests_wait_while_the_port_is_down) {
  QpOptions patient, hasty;
  patient.timeout = 20;  // 4.3 s, eight times
  hasty.timeout = 10;
  hasty.retry_cnt = 1;
  Cq cq(side), recv_cq(side);
  Qp qp(side, cq, recv_cq, patient), short_lived(side, cq, recv_cq, hasty);
  Buffer buffer(side, 4096);
  qp.connect();
  short_lived.connect();
  for (uint64_t id : {1, 2}) qp.receive(id, {buffer.sge(0, 64)});
  short_lived.receive(9, {buffer.sge(64, 64)});
  side.meet(1);
  qp.send(11, {buffer.sge(128, 64)});
  cq.expect(11);
  recv_cq.expect(1);
  side.meet(2);
  if (side.is_a()) side.errand("link down");
  expect_async_event(side, IBV_EVENT_PORT_ERR, IBV_EVENT_GID_CHANGE);
  side.meet(3);
  fill(buffer.data + 128, 64, side.is_a() ? 1 : 2);
  qp.send(12, {buffer.sge(128, 64)});
  cq.expect_none(200);
  if (side.is_a()) {
    short_lived.send(13, {buffer.sge(128, 64)});
    cq.expect(13, IBV_WC_RETRY_EXC_ERR);
    recv_cq.expect(9, IBV_WC_WR_FLUSH_ERR);
  }
  recv_cq.expect_none(1);
  side.meet(4);
  if (side.is_a()) side.errand("link up");
  expect_async_event(side, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_GID_CHANGE);
  cq.expect(12);
  CHECK_EQ(recv_cq.expect(2).byte_len, 64u);
  check_filled(buffer.data, 64, side.is_a() ? 2 : 1);
  side.meet(5);
  qp.receive(3, {buffer.sge(0, 64)});
  side.meet(6);
  qp.send(14, {buffer.sge(128, 64)});
  cq.expect(14);
  recv_cq.expect(3);
  side.meet(7);
}

}  // namespace conformance
