// A process of the device dies, and the next one has its image: what the driver finds.
#include <algorithm>
#include <set>

#include "tests/unit/pvrdma/guest.h"

namespace vrdma::pvrdma {
namespace {

constexpr auto kFatal = uint32_t{IBV_EVENT_DEVICE_FATAL};

class Restore : public ::testing::Test, protected Guest {
 protected:
  Restore() {
    attach();
    bind(0, gid_of(1));
  }
  ~Restore() override {
    function->reset();
    go_on();
    EXPECT_EQ(0u, verbs.objects());
  }
  [[nodiscard]] uint32_t create_context(uint64_t page) {
    EXPECT_TRUE(execute(Command::kCreateUc, CreateUc{kDoorbells / kPageSize + page}));
    return answer().made.handle;
  }
  [[nodiscard]] size_t fatal_events() {
    const auto& indices = at<Indices>(event_pages[0])[1];
    size_t count = 0;
    for (uint32_t i = 0; i < indices.producer; ++i)
      count += at<EventEntry>(event_pages[1])[i].type == kFatal ? 1 : 0;
    return count;
  }
  [[nodiscard]] std::multiset<uint64_t> take(const CompletionQueue& cq, ibv_wc_status status) {
    std::multiset<uint64_t> ids;
    for (auto entry = poll(cq); entry; entry = poll(cq)) {
      EXPECT_EQ(uint32_t{status}, entry->status) << entry->wr_id;
      ids.insert(entry->wr_id);
    }
    return ids;
  }
  [[nodiscard]] bool destroy(Command command, uint32_t handle) {
    return execute(command, Handle{handle});
  }
  static SendEntry send_of(uint64_t wr_id, uint32_t flags = kSignaled) {
    SendEntry entry{};
    entry.wr_id = wr_id;
    entry.opcode = static_cast<uint32_t>(SendOpcode::kSend);
    entry.flags = flags;
    return entry;
  }
};

TEST_F(Restore, RegistersAndMemory) {
  write(kRegisterBar, kRegMask, 5);
  EXPECT_FALSE(execute(static_cast<Command>(99), Handle{0}));
  die();
  EXPECT_EQ(5u, read(kRegisterBar, kRegMask));
  EXPECT_TRUE(has_failed());
  EXPECT_EQ(kDoorbells, read(kConfigRegion, 0x18));
  EXPECT_EQ(1u, fatal_events());
  EXPECT_EQ(0u, interrupts(kEventVector));  // masked
  write(kRegisterBar, kRegMask, 0);
  EXPECT_TRUE(execute(Command::kQueryPkey, Handle{0}));
  EXPECT_EQ(1u, interrupts(kResponseVector));
  // Memory that came and went.
  begin();
  EXPECT_EQ(0, function->unmap(kHigh, kRam / 2));
  EXPECT_EQ(kVectors + 2, custody.held.size());  // until it counts
  note();
  EXPECT_EQ(kVectors + 1, custody.held.size());
  die();
  begin();
  EXPECT_EQ(ENOENT, function->unmap(kHigh, kRam / 2));
  EXPECT_EQ(EEXIST, function->map({0, kPageSize, 0, true, true}, file.duplicate().value()));
  note();
  map({kHigh, kRam / 2, kRam / 2, true, true});
  EXPECT_EQ(kVectors + 2, custody.held.size());
}

TEST_F(Restore, WithoutADriver) {
  write(kRegisterBar, kRegControl, kReset);
  die();
  EXPECT_EQ(0u, fatal_events());
  EXPECT_EQ(0u, verbs.objects());
  EXPECT_FALSE(execute(Command::kQueryPkey, Handle{0}));
  attach();
  EXPECT_EQ(1u, create_pd());
}

// The kernel's connection manager goes on: its queue pair 1 has the receives that it had, and its
// region of all memory the same key.
TEST_F(Restore, TheKernelsObjectsGoOn) {
  const uint32_t pd = create_pd();
  const CompletionQueue cq = create_cq(64);
  ASSERT_TRUE(execute(Command::kCreateMr,
                      CreateMr{0, 0, 0, pd, IBV_ACCESS_LOCAL_WRITE, kMrOfAllMemory, 0}));
  const uint32_t key = answer().mr.lkey;
  const QueuePair qp = create_qp(pd, cq, 8, 2, 1);
  connect(qp, 0);
  const auto pages = take_pages(8);
  for (uint64_t i = 0; i < 8; ++i)
    ASSERT_TRUE(put_receive(qp, 100 + i, {{pages[i], kPageSize, key}}));
  ring_receives(qp);
  const auto message = take_pages(1);
  const auto sends_to_itself = [&](uint64_t wr_id) {
    SendEntry entry = send_of(wr_id);
    entry.ud.qpn = verbs.qps.begin()->first;
    ASSERT_TRUE(put_send(qp, entry, {{message[0], 32, key}}));
    ring_sends(qp);
    go_on();
  };
  for (uint64_t i = 0; i < 4; ++i) {
    std::memset(at(message[0]), static_cast<int>(i + 1), 32);
    if (i != 0) {
      die();
      ASSERT_NE(key, verbs.regions().begin()->first);
      go_on();
    }
    sends_to_itself(i);
    EXPECT_EQ(static_cast<int>(i + 1), *at(pages[i] + 40));
    EXPECT_EQ((std::multiset<uint64_t>{i, 100 + i}), take(cq, IBV_WC_SUCCESS));
  }
  EXPECT_EQ(3u, fatal_events());
  EXPECT_EQ(4u, verbs.qps.begin()->second->receives.size());
  EXPECT_TRUE(destroy(Command::kDestroyQp, qp.handle));
  EXPECT_TRUE(destroy(Command::kDestroyCq, cq.handle));
}

struct LostTest : Restore {
  LostTest() {
    context = create_context(1);
    pd = create_pd(context);
    cq = create_cq(64, context);
    a = create_qp(pd, cq, 16);
    b = create_qp(pd, cq, 16);
    a.doorbell_page = b.doorbell_page = 1;
    connect(a, b.qpn);
    connect(b, a.qpn);
    mr = create_mr(pd, 4096);
  }
  void receives(uint64_t first, uint64_t count) {
    for (uint64_t i = first; i < first + count; ++i)
      ASSERT_TRUE(put_receive(b, i, {{mr.start, 64, mr.key}}));
    ring_receives(b);
  }
  void sends(uint64_t first, uint64_t count, uint32_t flags = kSignaled) {
    for (uint64_t i = first; i < first + count; ++i)
      ASSERT_TRUE(put_send(a, send_of(i, flags), {{mr.start, 64, mr.key}}));
    ring_sends(a);
  }
  uint32_t context = 0, pd = 0;
  CompletionQueue cq;
  QueuePair a, b;
  Memory mr;
};

// Each request ends once: before with success, or after in a flush.
TEST_F(LostTest, EachRequestEndsOnce) {
  receives(100, 6);
  sends(0, 4);
  go_on();
  EXPECT_EQ((std::multiset<uint64_t>{0, 1, 2, 3, 100, 101, 102, 103}), take(cq, IBV_WC_SUCCESS));
  sends(4, 2);  // verbs have them, and have not come to them
  receives(106, 2);
  ASSERT_TRUE(put_send(a, send_of(6), {{mr.start, 64, mr.key}}));  // without a doorbell yet
  die();
  go_on();
  EXPECT_EQ((std::multiset<uint64_t>{4, 5, 6, 104, 105, 106, 107}), take(cq, IBV_WC_WR_FLUSH_ERR));
  EXPECT_EQ(1u, fatal_events());
  EXPECT_GE(interrupts(kCompletionVector), 1u);
  receives(108, 1);
  go_on();
  EXPECT_EQ((std::multiset<uint64_t>{108}), take(cq, IBV_WC_WR_FLUSH_ERR));
  die();
  go_on();
  EXPECT_TRUE(take(cq, IBV_WC_WR_FLUSH_ERR).empty());
  EXPECT_EQ(2u, fatal_events());
}

TEST_F(LostTest, UnsignaledRequests) {
  for (uint64_t round = 0; round < 5; ++round) {
    receives(100, 16);
    sends(0, 15, 0);
    sends(15, 1);
    go_on();
    EXPECT_EQ(17u, take(cq, IBV_WC_SUCCESS).size());
  }
  receives(200, 8);
  sends(1, 8, 0);
  go_on();
  EXPECT_EQ(8u, take(cq, IBV_WC_SUCCESS).size());  // receives
  die();
  go_on();
  // Nobody knows which of them were executed.
  EXPECT_EQ((std::multiset<uint64_t>{1, 2, 3, 4, 5, 6, 7, 8}), take(cq, IBV_WC_WR_FLUSH_ERR));
}

// It dies between the completion and the note of it, or before both.
TEST_F(LostTest, BetweenACompletionAndItsNote) {
  for (const bool was_pushed : {true, false}) {
    receives(100, 3);
    sends(0, 1);
    go_on();
    EXPECT_EQ(2u, take(cq, IBV_WC_SUCCESS).size());
    ImagedQp& qp = image().qps.all[b.handle];
    const uint32_t ended = qp.receives_ended;
    EXPECT_EQ(1u, ended);
    auto& producer = at<Indices>(cq.pages[0])[1].producer;
    qp.receives_ended = 0;
    image().cqs.all[cq.handle].pushed =
        Pushed{was_pushed ? producer.load() : producer + 1, b.handle, 1, true}.word();
    die();
    go_on();
    std::multiset<uint64_t> rest{101, 102};
    if (!was_pushed) rest.insert(100);
    EXPECT_EQ(rest, take(cq, IBV_WC_WR_FLUSH_ERR));
    EXPECT_TRUE(destroy(Command::kDestroyQp, a.handle));
    EXPECT_TRUE(destroy(Command::kDestroyQp, b.handle));
    a = create_qp(pd, cq, 16);
    b = create_qp(pd, cq, 16);
    a.doorbell_page = b.doorbell_page = 1;
    connect(a, b.qpn);
    connect(b, a.qpn);
    mr = create_mr(pd, 4096);
  }
}

// A handle, or a queue pair after RESET, begins at 0, whatever was pushed last.
TEST_F(LostTest, PositionsBeginAnew) {
  receives(100, 3);
  sends(0, 3);
  go_on();
  EXPECT_EQ(6u, take(cq, IBV_WC_SUCCESS).size());
  ASSERT_TRUE(modify(b, IBV_QPS_RESET));
  for (int pair = 0; pair < 2; ++pair)
    at<Indices>(b.pages[0])[pair].producer = at<Indices>(b.pages[0])[pair].consumer = 0;
  EXPECT_TRUE(destroy(Command::kDestroyQp, a.handle));
  QueuePair c = create_qp(pd, cq, 16);
  while (c.handle != a.handle) {  // until it is its turn
    ASSERT_TRUE(destroy(Command::kDestroyQp, c.handle));
    for (const uint64_t page : c.pages) give_page(page);
    c = create_qp(pd, cq, 16);
  }
  a = c;
  a.doorbell_page = 1;
  connect(a, b.qpn);
  connect(b, a.qpn);
  receives(10, 5);
  sends(20, 5);
  die();
  go_on();
  EXPECT_EQ((std::multiset<uint64_t>{10, 11, 12, 13, 14, 20, 21, 22, 23, 24}),
            take(cq, IBV_WC_WR_FLUSH_ERR));
}

// What the driver has put in the place of a request that has ended without a completion.
TEST_F(LostTest, AFullRingBehindUnsignaledRequests) {
  receives(100, 16);
  sends(0, 16, 0);
  go_on();
  EXPECT_EQ(16u, take(cq, IBV_WC_SUCCESS).size());
  for (uint64_t i = 16; i < 32; ++i)
    ASSERT_TRUE(put_send(a, send_of(i, 0), {{mr.start, 64, mr.key}}));
  die();
  go_on();
  const auto flushed = take(cq, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(16u, flushed.size());
  EXPECT_EQ(16u, *flushed.begin());
}

TEST_F(LostTest, AFullQueueWaitsForTheDriver) {
  const CompletionQueue small = create_cq(4, context);
  QueuePair c = create_qp(pd, small, 16);
  c.doorbell_page = 1;
  connect(c, b.qpn);
  for (uint64_t i = 0; i < 16; ++i) ASSERT_TRUE(put_receive(c, i, {{mr.start, 64, mr.key}}));
  ring_receives(c);
  die();
  std::multiset<uint64_t> all;
  for (int i = 0; i < 100 && all.size() < 16; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    go_on();
    all.merge(take(small, IBV_WC_WR_FLUSH_ERR));
  }
  EXPECT_EQ(16u, all.size());
  EXPECT_EQ(16u, std::set<uint64_t>(all.begin(), all.end()).size());
}

TEST_F(LostTest, NothingCanBeDoneWithThemButDestroyThem) {
  CreateSrq shared{};
  const auto pages = take_pages(2);
  shared.directory = directory(pages);
  shared.pd = pd;
  shared.pages = 2;
  shared.attributes = {16, 1, 0, 0};
  ASSERT_TRUE(execute(Command::kCreateSrq, shared));
  const uint32_t srq = answer().made.handle;
  die();
  EXPECT_EQ(2u, verbs.objects());  // the domain and the queue of completions
  EXPECT_TRUE(verbs.regions().empty());
  ASSERT_TRUE(execute(Command::kQueryQp, QueryQp{a.handle, IBV_QP_STATE}));
  EXPECT_EQ(uint32_t{IBV_QPS_ERR}, answer().attributes.qp_state);
  EXPECT_FALSE(modify(a, IBV_QPS_RESET));
  EXPECT_EQ(EIO, answer().header.error);
  EXPECT_TRUE(modify(a, IBV_QPS_ERR));
  EXPECT_FALSE(execute(Command::kQuerySrq, Handle{srq}));
  EXPECT_FALSE(execute(Command::kModifySrq, ModifySrq{srq, IBV_SRQ_LIMIT, {0, 0, 2, 0}}));
  CreateQp with{};
  with.pd = pd;
  with.send_cq = with.recv_cq = cq.handle;
  with.srq = srq;
  with.is_srq = 1;
  with.qp_type = IBV_QPT_RC;
  EXPECT_FALSE(execute(Command::kCreateQp, with));
  // Their handles are the driver's until it destroys them, and what is new works.
  const QueuePair c = create_qp(pd, cq, 16);
  EXPECT_NE(a.handle, c.handle);
  EXPECT_NE(b.handle, c.handle);
  EXPECT_NE(mr.handle, create_mr(pd, 64).handle);
  for (const uint32_t handle : {a.handle, b.handle})
    EXPECT_TRUE(destroy(Command::kDestroyQp, handle));
  EXPECT_FALSE(destroy(Command::kDestroyQp, a.handle));
  EXPECT_TRUE(destroy(Command::kDestroyMr, mr.handle));
  EXPECT_TRUE(destroy(Command::kDestroySrq, srq));
  die();
  EXPECT_FALSE(destroy(Command::kDestroyQp, b.handle));
  EXPECT_FALSE(destroy(Command::kDestroySrq, srq));
  EXPECT_TRUE(destroy(Command::kDestroyQp, c.handle));
}

// Verbs do not know that a lost queue pair names its completion queue and its domain. If the guest
// could destroy them first, a flush would write by a queue that has been freed.
TEST_F(LostTest, WhatTheyNameIsInUse) {
  die();
  EXPECT_FALSE(destroy(Command::kDestroyCq, cq.handle));
  EXPECT_FALSE(destroy(Command::kDestroyPd, pd));
  EXPECT_TRUE(destroy(Command::kDestroyQp, a.handle));
  EXPECT_FALSE(destroy(Command::kDestroyCq, cq.handle));
  EXPECT_FALSE(destroy(Command::kDestroyPd, pd));
  receives(0, 1);
  go_on();
  EXPECT_EQ((std::multiset<uint64_t>{0}), take(cq, IBV_WC_WR_FLUSH_ERR));
  EXPECT_TRUE(destroy(Command::kDestroyQp, b.handle));
  EXPECT_TRUE(destroy(Command::kDestroyCq, cq.handle));
  EXPECT_TRUE(destroy(Command::kDestroyPd, pd));
}

// What a message did does not count before it is noted: it is executed again.
TEST_F(LostTest, ACommandThatWasNotNoted) {
  const auto commands = [&](Command command, const auto& body) {
    CommandSlot slot{};
    slot.header.command = static_cast<uint32_t>(command);
    std::memcpy(reinterpret_cast<uint8_t*>(&slot) + sizeof slot.header, &body, sizeof body);
    std::memcpy(at(command_slot), &slot, sizeof slot);
    const uint32_t go = 0;
    begin();
    function->write(kRegisterBar, kRegRequest, {reinterpret_cast<const uint8_t*>(&go), 4});
    function->before_note();
  };
  commands(Command::kCreatePd, CreatePd{context});
  const uint32_t made = answer().made.handle;
  die();
  EXPECT_EQ(made, create_pd(context));
  commands(Command::kDestroyPd, Handle{made});
  die();
  EXPECT_TRUE(destroy(Command::kDestroyPd, made));
  EXPECT_FALSE(destroy(Command::kDestroyPd, made));
  commands(Command::kDestroyQp, Handle{a.handle});
  die();
  EXPECT_TRUE(destroy(Command::kDestroyQp, a.handle));
  // A reset that does not count.
  const uint32_t value = kReset;
  begin();
  function->write(kRegisterBar, kRegControl, {reinterpret_cast<const uint8_t*>(&value), 4});
  function->before_note();
  die();
  EXPECT_TRUE(destroy(Command::kDestroyQp, b.handle));
  write(kRegisterBar, kRegControl, kReset);
  die();
  EXPECT_EQ(0u, verbs.objects());
}

TEST_F(LostTest, TheNextVmmFindsNothing) {
  function->clear();
  die();
  EXPECT_TRUE(custody.held.empty());
  EXPECT_EQ(0u, verbs.objects());
  EXPECT_EQ(UINT32_MAX, read(kRegisterBar, kRegMask));
}

// Where the driver's memory has gone, or the vdevice has no room, the driver has to begin again.
TEST_F(LostTest, WhatCannotBeRestored) {
  begin();
  EXPECT_EQ(0, function->unmap(kHigh, kRam / 2));
  EXPECT_EQ(0, function->unmap(0, kRam / 2));
  note();
  die();
  EXPECT_EQ(0u, verbs.objects());
  EXPECT_TRUE(has_failed());
  map({0, kRam / 2, 0, true, true});
  map({kHigh, kRam / 2, kRam / 2, true, true});
  EXPECT_FALSE(execute(Command::kQueryPkey, Handle{0}));
  attach();
  EXPECT_EQ(1u, create_pd());
}

// Two processes have died of restoring it.
TEST_F(LostTest, AnImageThatKills) {
  image().attempts = 2;
  die();
  EXPECT_EQ(0u, verbs.objects());
  EXPECT_TRUE(has_failed());
  EXPECT_EQ(0u, image().attempts);
}

// The process that wrote the image was taken over.
TEST_F(LostTest, AnImageOfNonsense) {
  std::mt19937_64 random(7);
  const auto scribble = [&](auto& record) {
    auto* const bytes = reinterpret_cast<uint8_t*>(&record);
    for (int i = 0; i < 4; ++i) bytes[random() % sizeof record] = static_cast<uint8_t>(random());
  };
  size_t restored = 0;
  for (int i = 0; i < 400; ++i) {
    scribble(image().registers[random() % 2]);
    scribble(image().qps.all[1 + random() % 3]);
    if (i % 2 == 0) scribble(image().cqs.all[1 + random() % 2]);
    if (i % 4 == 0) scribble(image().ranges.all[random() % 3]);
    if (i % 3 == 0) scribble(image().mrs.all[1 + random() % 2]);
    if (i % 5 == 0) scribble(image().pds.all[1 + random() % 2]);
    if (i % 7 == 0) image().qps.end = static_cast<uint32_t>(random());
    die();
    go_on();
    restored += verbs.objects() != 0 ? 1 : 0;
    if (i % 3 != 2) continue;
    // The driver begins anew.
    function->clear();
    map({0, kRam / 2, 0, true, true});
    map({kHigh, kRam / 2, kRam / 2, true, true});
    attach();
    context = create_context(1);
    pd = create_pd(context);
    cq = create_cq(64, context);
    const QueuePair c = create_qp(pd, cq, 16);
    (void)c;
    for (auto* const pages : {&cq.pages})
      for (const uint64_t page : *pages) give_page(page);
    for (const uint64_t page : c.pages) give_page(page);
  }
  EXPECT_GT(restored, 50u);
}

}  // namespace
}  // namespace vrdma::pvrdma
