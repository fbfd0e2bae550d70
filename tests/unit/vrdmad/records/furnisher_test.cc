// The Furnisher makes the descriptors and files of a session, finds the descriptors again for the
// next daemon, and removes the files.
#include "vrdmad/records/furnisher.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <iterator>
#include <thread>

#include "core/ipc/layout.h"
#include "core/ipc/socket.h"
#include "tests/unit/vrdmad/admin/fixture.h"
#include "tests/unit/vrdmad/broker/hung_broker.h"
#include "vrdmad/broker/broker_process.h"
#include "vrdmad/broker/local_broker.h"

namespace vrdma::vrdmad {
namespace {

constexpr uint64_t kVdevice = 3;
const Furnisher::Opened kRed{"red0", 42, 5, false};

constexpr base::Duration kPatience = std::chrono::seconds(30);  // longer than a test

struct Furnishers : testing::Test {
  Furnishers() { furnisher.begin(temp.path(), {}, 9, 100, kPatience); }
  // The caller of a connection that this process made.
  [[nodiscard]] std::shared_ptr<Caller> caller() const {
    auto [other, daemons] = ipc::make_socket_pair().value();
    auto arrival = broker->admit(std::move(daemons));
    EXPECT_TRUE(arrival);
    return arrival->caller;
  }
  // A caller with the pid of this process and another start time.
  [[nodiscard]] std::shared_ptr<Caller> stranger() const {
    rdma::Peer peer = caller()->peer();
    ++peer.start_time;
    return std::make_shared<Caller>(broker, 0, peer);
  }
  [[nodiscard]] size_t files() const {
    namespace fs = std::filesystem;
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(temp.path()), fs::directory_iterator()));
  }
  [[nodiscard]] SessionFiles files_of(uint32_t session) const {
    auto found = SessionFiles::open(temp.path(), session);
    EXPECT_TRUE(found) << found.error().message();
    return found ? std::move(*found) : SessionFiles{};
  }
  // As the worker has them, which may write.
  [[nodiscard]] static SessionFiles of_worker(const SessionKit& kit) {
    return SessionFiles::open(kit.anchors.duplicate().value(), kit.journal.duplicate().value())
        .value();
  }
  [[nodiscard]] std::vector<Furnisher::Adopted> adopt(Furnisher& next, uint32_t session) {
    std::vector<Furnisher::Found> found;
    found.push_back({kVdevice, "red0", files_of(session), account});
    return next.take_over(*broker, std::move(found)).sessions;
  }

  const TempDir temp;
  std::shared_ptr<LocalBroker> broker = std::make_shared<LocalBroker>();
  Intake::AccountRef account = std::make_shared<Intake::Account>(nullptr);
  Furnisher furnisher;
};

TEST_F(Furnishers, MakeAllThatASessionNeeds) {
  const uint64_t connection = furnisher.add(kVdevice, caller());
  EXPECT_EQ(furnisher.vdevice_of(connection), kVdevice);
  auto kit = furnisher.furnish(connection, kRed, {});
  ASSERT_TRUE(kit) << kit.error().message();
  EXPECT_EQ(kit->session, 101u);
  for (const base::Fd* fd : {&kit->arena, &kit->bells, &kit->memory, &kit->doorbell,
                             &kit->events.read, &kit->events.write, &kit->arena_read_only})
    EXPECT_TRUE(fd->valid());
  EXPECT_FALSE(kit->userfaultfd.valid()) << "it is not allowed";
  EXPECT_EQ(file_id(kit->arena_read_only), kit->arena_id) << "the same file";
  EXPECT_FALSE(base::Mapping::shared(kit->arena_read_only, ipc::kQueueArenaSize, 0, PROT_WRITE))
      << "a peer writes the queues of another";
  const SessionFiles files = files_of(kit->session);
  const Anchor& anchor = files.anchors->anchors().of;
  EXPECT_STREQ(anchor.name, "red0");
  EXPECT_EQ(anchor.vdevice, kVdevice);
  EXPECT_EQ(anchor.epoch, 9u);
  EXPECT_EQ(anchor.process.pid, ::getpid());
  EXPECT_EQ(anchor.memory, kit->memory_id);
}

TEST_F(Furnishers, RemoveTheFilesOfASessionThatHasEnded) {
  const uint64_t connection = furnisher.add(kVdevice, caller());
  {
    const auto kit = furnisher.furnish(connection, kRed, {});
    ASSERT_TRUE(kit);
  }
  EXPECT_EQ(files(), 2u) << "the worker has them no more, but did not say that it is over";
  ASSERT_TRUE(furnisher.furnish(connection, kRed, {}));
  EXPECT_EQ(files(), 2u) << "those of a proof that failed are left";
  furnisher.ended(connection);
  EXPECT_EQ(files(), 0u);
  EXPECT_EQ(furnisher.vdevice_of(connection), 0u);
  EXPECT_EQ(furnisher.furnish(connection, kRed, {}).error().code(), ENOTCONN);
}

TEST_F(Furnishers, LeaveOnlyWhatTheNextDaemonCanTakeOver) {
  for (const uint64_t vdevice : {kVdevice, kVdevice + 1}) {
    const auto kit = furnisher.furnish(furnisher.add(vdevice, caller()), kRed, {});
    ASSERT_TRUE(kit);
  }
  furnisher.leave([](uint64_t vdevice) { return vdevice == kVdevice; });
  EXPECT_EQ(files(), 2u);
  EXPECT_EQ(files_of(101).anchors->anchors().of.vdevice, kVdevice);
}

TEST_F(Furnishers, TakeTheMemoryArenaThatAProcessHasAndNoOther) {
  const auto first = furnisher.furnish(furnisher.add(kVdevice, caller()), kRed, {});
  ASSERT_TRUE(first);
  const auto second = furnisher.furnish(furnisher.add(kVdevice, caller()), kRed, first->memory_id);
  ASSERT_TRUE(second) << second.error().message();
  EXPECT_EQ(second->memory_id, first->memory_id);
  EXPECT_FALSE(second->memory.valid()) << "the program has it";
  const uint64_t other = furnisher.add(kVdevice, stranger());
  EXPECT_EQ(furnisher.furnish(other, kRed, first->memory_id).error().code(), EPERM);
  EXPECT_EQ(furnisher.furnish(other, kRed, first->arena_id).error().code(), EPERM)
      << "a queue arena is no memory";
}

// Of a process that has no session at the moment.
TEST_F(Furnishers, KnowAMemoryArenaThatAnEarlierDaemonMade) {
  const std::string file = temp.path() + "/arenas";
  const auto begun = [&file] {
    auto made = std::make_unique<Furnisher>();
    made->begin({}, file, 9, 100, kPatience);
    return made;
  };
  auto earlier = begun();
  const auto kit = earlier->furnish(earlier->add(kVdevice, caller()), kRed, {}).value();
  earlier = begun();
  EXPECT_TRUE(earlier->furnish(earlier->add(kVdevice, caller()), kRed, kit.memory_id));
  EXPECT_EQ(
      earlier->furnish(earlier->add(kVdevice, stranger()), kRed, kit.memory_id).error().code(),
      EPERM);
  earlier->leave([](uint64_t) { return false; });
  EXPECT_TRUE(std::filesystem::exists(file)) << "the process lives";
}

TEST_F(Furnishers, ForgetMemoryArenasOfProcessesThatHaveEnded) {
  const std::string file = temp.path() + "/arenas";
  rdma::Peer gone = caller()->peer();
  gone.pid = ::fork();
  if (gone.pid == 0) ::pause();
  Owners owners;
  owners.open(file);
  owners.note({1, 2}, gone);
  EXPECT_TRUE(owners.has(gone, {1, 2}));
  ASSERT_EQ(::kill(gone.pid, SIGKILL), 0);
  ASSERT_EQ(::waitpid(gone.pid, nullptr, 0), gone.pid);
  owners.sweep();
  EXPECT_FALSE(owners.has(gone, {1, 2}));
  EXPECT_FALSE(std::filesystem::exists(file));
}

// For a process that opens without presenting what it has.
TEST_F(Furnishers, KeepTheLatestMemoryArenasOfAProcess) {
  std::vector<FileId> arenas;
  std::vector<SessionKit> kits;  // so that no inode is used again
  for (int i = 0; i < 20; ++i) {
    kits.push_back(furnisher.furnish(furnisher.add(kVdevice, caller()), kRed, {}).value());
    arenas.push_back(kits.back().memory_id);
  }
  const uint64_t connection = furnisher.add(kVdevice, caller());
  EXPECT_EQ(furnisher.furnish(connection, kRed, arenas.front()).error().code(), EPERM);
  EXPECT_TRUE(furnisher.furnish(connection, kRed, arenas[18]));
  EXPECT_TRUE(furnisher.furnish(connection, kRed, arenas.back()));
}

TEST_F(Furnishers, FindAKitAgainInTheProcessThatHasIt) {
  const auto kit = furnisher.furnish(furnisher.add(kVdevice, caller()), kRed, {});
  ASSERT_TRUE(kit);
  EXPECT_FALSE(files_of(kit->session).journal->is_open()) << "no worker has opened the session";
  of_worker(*kit).journal->begin();
  EXPECT_TRUE(files_of(kit->session).journal->is_open());
  const auto channel = ipc::make_event_ends(1).value();
  of_worker(*kit).anchors->put_channel(7, file_id(channel.write).inode);
  of_worker(*kit).anchors->put_channel(8, 1);  // that one the program has closed
  const base::Fd table = base::make_memfd("shown-table", 1 << 20).value();
  const base::Fd ram = base::make_memfd("shown-ram", 8192).value();
  of_worker(*kit).anchors->put_shown({{file_id(table), 1 << 20}, {file_id(ram), 8192}});
  Furnisher next;
  next.begin(temp.path(), {}, 10, 101, kPatience);
  auto adopted = adopt(next, kit->session);
  ASSERT_EQ(adopted.size(), 1u);
  SessionKit& again = adopted[0].kit;
  EXPECT_EQ(again.session, kit->session);
  EXPECT_EQ(file_id(again.arena), kit->arena_id);
  EXPECT_EQ(file_id(again.memory), kit->memory_id);
  EXPECT_EQ(eventfd_id(again.doorbell), eventfd_id(kit->doorbell));
  EXPECT_EQ(file_id(again.events.write), file_id(kit->events.write));
  EXPECT_TRUE(again.arena_read_only.valid());
  EXPECT_EQ(again.channels.size(), 1u);
  EXPECT_EQ(file_id(again.channels.at(7)), file_id(channel.write));
  ASSERT_EQ(again.shown.size(), 2u);
  EXPECT_EQ(file_id(again.shown[0].file), file_id(table));
  EXPECT_EQ(again.shown[0].is.size, uint64_t{1} << 20);
  EXPECT_EQ(file_id(again.shown[1].file), file_id(ram));
  EXPECT_EQ(adopted[0].caller->peer().pid, ::getpid());
  ASSERT_TRUE(next.furnish(next.add(kVdevice, caller()), kRed, kit->memory_id))
      << "it may present its memory again";
  EXPECT_EQ(files(), 4u);
  next.ended(adopted[0].connection);
  EXPECT_EQ(files(), 2u);
}

TEST_F(Furnishers, LeaveOutASessionThatShowsMemoryOfAnotherSize) {
  const auto kit = furnisher.furnish(furnisher.add(kVdevice, caller()), kRed, {});
  ASSERT_TRUE(kit);
  of_worker(*kit).journal->begin();
  const base::Fd ram = base::make_memfd("shown-ram", 8192).value();
  of_worker(*kit).anchors->put_shown({{file_id(ram), 4096}});
  Furnisher next;
  next.begin(temp.path(), {}, 10, 101, kPatience);
  EXPECT_TRUE(adopt(next, kit->session).empty());
}

// A worker writes the files of its sessions. It may not make one of another process its own.
TEST_F(Furnishers, RefuseASessionThatControlHasNotMade) {
  const std::string file = temp.path() + "/arenas";
  const auto begun = [&] {
    auto made = std::make_unique<Furnisher>();
    made->begin(temp.path(), file, 10, 200, kPatience);
    return made;
  };
  auto earlier = begun();
  const auto kit = earlier->furnish(earlier->add(kVdevice, caller()), kRed, {});
  ASSERT_TRUE(kit);
  of_worker(*kit).journal->begin();
  const auto taken_by = [&](Furnisher& one, uint64_t vdevice) {
    std::vector<Furnisher::Found> found;
    found.push_back({vdevice, "red0", files_of(kit->session), account});
    found.back().files.keep();
    return one.take_over(*broker, std::move(found)).sessions.size();
  };
  Owners owners;
  owners.open(file);
  rdma::Peer other = caller()->peer();
  EXPECT_TRUE(owners.may_have(kit->session, kVdevice, other));
  EXPECT_FALSE(owners.may_have(kit->session, kVdevice + 1, other)) << "of another vdevice";
  EXPECT_FALSE(owners.may_have(kit->session + 1, kVdevice, other)) << "another session";
  ++other.start_time;
  EXPECT_FALSE(owners.may_have(kit->session, kVdevice, other)) << "another process";
  EXPECT_EQ(taken_by(*begun(), kVdevice + 1), 0u);
}

TEST_F(Furnishers, TakeOverWhatADaemonLeftThatListedNoSessions) {
  const std::string file = temp.path() + "/arenas";
  const auto kit = furnisher.furnish(furnisher.add(kVdevice, caller()), kRed, {});
  ASSERT_TRUE(kit);
  of_worker(*kit).journal->begin();
  Furnisher next;
  next.begin(temp.path(), file, 10, 101, kPatience);
  auto adopted = adopt(next, kit->session);
  ASSERT_EQ(adopted.size(), 1u);
  Owners owners;
  owners.open(file);
  EXPECT_TRUE(owners.may_have(kit->session, kVdevice, caller()->peer()));
  EXPECT_FALSE(owners.may_have(kit->session, kVdevice + 1, caller()->peer())) << "it is listed";
  next.ended(adopted[0].connection);
}

TEST_F(Furnishers, ForgetSessionsThatHaveEnded) {
  const std::string file = temp.path() + "/arenas";
  Owners owners;
  owners.open(file);
  const rdma::Peer peer = caller()->peer();
  for (uint32_t session = 1; session <= 10'000; ++session) {
    ASSERT_TRUE(owners.note_session(session, kVdevice, peer));
    if (session % 100 != 0) owners.forget_session(session);
  }
  EXPECT_LT(std::filesystem::file_size(file), 1000u * 32) << "the file is written anew";
  Owners next;
  next.open(file);
  EXPECT_TRUE(next.may_have(5'000, kVdevice, peer));
  EXPECT_FALSE(next.may_have(5'001, kVdevice, peer));
}

TEST_F(Furnishers, RemoveTheFilesOfASessionThatIsNotFound) {
  uint32_t session = 0;
  {
    const auto kit = furnisher.furnish(furnisher.add(kVdevice, caller()), kRed, {});
    ASSERT_TRUE(kit);
    of_worker(*kit).journal->begin();
    session = kit->session;
  }
  Furnisher next;
  next.begin(temp.path(), {}, 10, 101, kPatience);
  std::vector<Furnisher::Found> found;
  found.push_back({kVdevice, "red0", files_of(session), account});
  const auto taken = next.take_over(*broker, std::move(found));
  EXPECT_TRUE(taken.sessions.empty()) << "its process has closed all";
  EXPECT_GT(taken.searched.at(kVdevice).count(), 0) << "the search is paid for";
  EXPECT_EQ(files(), 0u);
}

TEST_F(Furnishers, LeaveTheFilesToTheNextDaemonIfTheBrokerHasEnded) {
  const auto kit = furnisher.furnish(furnisher.add(kVdevice, caller()), kRed, {});
  ASSERT_TRUE(kit);
  of_worker(*kit).journal->begin();
  Furnisher next;
  next.begin(temp.path(), {}, 10, 101, kPatience);
  std::vector<Furnisher::Found> found;
  found.push_back({kVdevice, "red0", files_of(kit->session), account});
  const auto ended = BrokerProcess::over(std::move(ipc::make_socket_pair()->first));
  EXPECT_TRUE(next.take_over(*ended, std::move(found)).sessions.empty());
  EXPECT_EQ(files(), 2u);
  EXPECT_EQ(adopt(next, kit->session).size(), 1u);
}

TEST_F(Furnishers, DeliverTheSessionsThatWorkedLastFirst) {
  constexpr size_t kSessions = 3 * Furnisher::kFirstBatch + 4;
  std::vector<SessionKit> kits;
  std::vector<Furnisher::Found> found;
  for (size_t i = 0; i < kSessions; ++i) {
    kits.push_back(furnisher.furnish(furnisher.add(kVdevice, caller()), kRed, {}).value());
    const SessionFiles files = of_worker(kits.back());
    files.journal->begin();
    if (i % 7 == 3) files.journal->worked(base::TimePoint(std::chrono::seconds(i)));
    found.push_back({kVdevice, "red0", files_of(kits.back().session), account});
  }
  Furnisher next;
  next.begin(temp.path(), {}, 10, 200, kPatience);
  std::vector<size_t> batches;
  std::vector<uint32_t> order;
  const auto note = [&](const std::vector<Furnisher::Adopted>& sessions) {
    batches.push_back(sessions.size());
    for (const auto& one : sessions) order.push_back(one.kit.session);
  };
  note(next.take_over(*broker, std::move(found), note).sessions);
  EXPECT_EQ(batches, (std::vector<size_t>{Furnisher::kFirstBatch, 2 * Furnisher::kFirstBatch, 4}));
  ASSERT_EQ(order.size(), kSessions);
  constexpr size_t kLast = 3 + 7 * ((kSessions - 4) / 7);
  size_t at = 0;
  for (size_t i = kLast; i < kSessions; i -= 7) EXPECT_EQ(order[at++], kits[i].session);
  EXPECT_EQ(order[at], kits[0].session) << "the others in their order";
  EXPECT_EQ(order.back(), kits.back().session);
}

struct UnansweredSessions : Furnishers {
  UnansweredSessions() : hung(std::make_shared<HungBroker>(broker)) {
    kit = furnisher.furnish(furnisher.add(kVdevice, caller()), kRed, {}).value();
    of_worker(kit).journal->begin();
    next.begin(temp.path(), {}, 10, 101, kPatience);
    found.push_back({kVdevice, "red0", files_of(kit.session), account});
  }
  Furnisher::TakenOver take_over() {
    auto taken = next.take_over(*hung, std::exchange(found, {}));
    for (auto& files : taken.unanswered)
      found.push_back({kVdevice, "red0", std::move(files), account});
    return taken;
  }
  std::shared_ptr<HungBroker> hung;
  SessionKit kit;
  Furnisher next;
  std::vector<Furnisher::Found> found;
};

TEST_F(UnansweredSessions, AreTakenOverWhenTheirProcessAnswers) {
  for (const int error : {EAGAIN, ENXIO, EAGAIN}) {
    hung->error = error;
    const auto taken = take_over();
    EXPECT_TRUE(taken.sessions.empty());
    ASSERT_EQ(taken.unanswered.size(), 1u) << error;
    EXPECT_GT(taken.again_after.count(), 0);
    EXPECT_EQ(files(), 2u) << "its records are harmed";
  }
  hung->error = 0;
  const auto taken = take_over();
  ASSERT_EQ(taken.sessions.size(), 1u);
  EXPECT_TRUE(taken.unanswered.empty());
  EXPECT_EQ(taken.sessions[0].kit.session, kit.session);
}

TEST_F(UnansweredSessions, AreTriedLessAndLessOften) {
  const auto first = take_over().again_after;
  ::usleep(270'000);
  EXPECT_GT(take_over().again_after, first);
}

TEST_F(UnansweredSessions, AreGivenUpInTheEnd) {
  const base::Duration patience = std::chrono::milliseconds(300);
  next.begin(temp.path(), {}, 10, 101, patience);
  ASSERT_EQ(take_over().unanswered.size(), 1u);
  std::this_thread::sleep_for(patience);
  EXPECT_TRUE(take_over().unanswered.empty());
  EXPECT_EQ(files(), 0u);
}

TEST_F(UnansweredSessions, AreGivenUpWhenTheirProcessIsAnother) {
  ASSERT_EQ(take_over().unanswered.size(), 1u);
  hung->error = ESRCH;
  EXPECT_TRUE(take_over().unanswered.empty());
  EXPECT_EQ(files(), 0u);
}

}  // namespace
}  // namespace vrdma::vrdmad
