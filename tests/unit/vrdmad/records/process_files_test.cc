#include "vrdmad/records/process_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <vector>

#include "core/base/mapping.h"
#include "core/ipc/event_ends.h"
#include "core/ipc/socket.h"
#include "vrdmad/broker/local_broker.h"

namespace vrdma::vrdmad {
namespace {

constexpr uint64_t kSize = 4096;

// The test's own process, as another daemon's client.
struct Files : testing::Test {
  [[nodiscard]] std::shared_ptr<Caller> admit() {
    auto [other, daemons] = ipc::make_socket_pair().value();
    return broker->admit(std::move(daemons)).value().caller;
  }
  [[nodiscard]] static Caller::Wanted in_memory(const base::Fd& file) {
    return {file_id(file).inode, WantedFile::kMemory};
  }
  // Each process is searched once.
  ProcessFiles take(const Caller& process, const std::vector<Caller::Wanted>& wanted) {
    auto taken = process.take(wanted, time, &used);
    EXPECT_TRUE(taken);
    return {account, wanted, std::move(*taken)};
  }

  base::Fd memory = *base::make_memfd("vrdma-queues", kSize);
  base::Fd doorbell{::eventfd(0, EFD_CLOEXEC)};
  ipc::EventEnds events = *ipc::make_event_ends(1);
  Intake::AccountRef account = std::make_shared<Intake::Account>(nullptr);
  std::shared_ptr<LocalBroker> broker = std::make_shared<LocalBroker>();
  base::Duration time = ProcessFiles::kSearchTime, used{};
};

TEST_F(Files, AreFoundByWhatTheKernelCallsThem) {
  std::vector<Caller::Wanted> wanted(Broker::Request::kMostWanted, in_memory(memory));
  wanted.push_back({eventfd_id(doorbell), WantedFile::kEventfd});  // more than one request takes
  wanted.push_back({1, WantedFile::kSocket});
  wanted.push_back({file_id(events.write).inode, WantedFile::kSocket});
  auto found = take(*admit(), wanted);
  const auto file = found.memory_file(file_id(memory), kSize);
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ(file_id(*file), file_id(memory));
  const auto bell = found.eventfd(eventfd_id(doorbell));
  ASSERT_TRUE(bell);
  EXPECT_EQ(eventfd_id(*bell), eventfd_id(doorbell));
  EXPECT_TRUE(found.event_end(file_id(events.write).inode));
  EXPECT_EQ(found.event_end(1).error().code(), ENOENT) << "it has none of that number";
  EXPECT_FALSE(found.memory_file(file_id(memory), kSize)) << "it is given once";
  auto again = take(*admit(), {in_memory(memory)});
  EXPECT_FALSE(again.memory_file(file_id(memory), kSize + 1)) << "it has another size";
}

TEST_F(Files, AreThoseThatMayBeWritten) {
  const base::Fd read_only = *memory.reopen(O_RDONLY);
  memory = base::Fd(::fcntl(memory.get(), F_DUPFD_CLOEXEC, read_only.get() + 1));  // behind it
  auto found = take(*admit(), {in_memory(memory)});
  const auto file = found.memory_file(file_id(memory), kSize);
  ASSERT_TRUE(file);
  EXPECT_EQ(::fcntl(file->get(), F_GETFL) & O_ACCMODE, O_RDWR);
}

TEST_F(Files, AreNotFoundWhenTheyHaveGone) {
  const Caller::Wanted bell{eventfd_id(doorbell), WantedFile::kEventfd};
  const auto process = admit();
  const auto has = [&](const Caller& whose) {
    return take(whose, {bell}).eventfd(bell.id).has_value();
  };
  EXPECT_TRUE(has(*process));
  doorbell = base::Fd();
  EXPECT_FALSE(has(*process)) << "it is closed";
  doorbell = *memory.duplicate();
  EXPECT_FALSE(has(*process)) << "another has its number";
  EXPECT_FALSE(has(*admit()));
}

// So that one search does not reach the doorbell in no time.
struct CrowdedFiles : Files {
  CrowdedFiles() {
    for (int i = 0; i < 500; ++i) crowd.emplace_back(::fcntl(memory.get(), F_DUPFD_CLOEXEC, 0));
    doorbell = base::Fd(::fcntl(doorbell.get(), F_DUPFD_CLOEXEC, crowd.back().get()));
    bell = {eventfd_id(doorbell), WantedFile::kEventfd};
  }
  std::vector<base::Fd> crowd;
  Caller::Wanted bell;
};

TEST_F(CrowdedFiles, AreSearchedUntilTheTimeIsOver) {
  EXPECT_TRUE(take(*admit(), {bell}).eventfd(bell.id)) << "it is behind many others";
  EXPECT_GT(used.count(), 0);
  EXPECT_EQ(admit()->take({bell}, {}, &used).error().code(), EMFILE);
}

// At a takeover, the sessions of a process.
TEST_F(CrowdedFiles, AreSearchedOnceForAllEntriesOfAProcess) {
  const auto first = admit();
  const auto find = [&](base::Duration limit, const Caller* earlier) {
    Broker& all = *broker;
    return all.find(first->peer(), {}, {}, {{bell}, limit, &used, earlier});
  };
  const auto found = find(time, nullptr);
  ASSERT_TRUE(found && found->files.size() == 1);
  EXPECT_TRUE(found->files[0].valid());
  EXPECT_TRUE(find({}, found->caller.get())) << "it is searched again";
  EXPECT_EQ(find({}, nullptr).error().code(), EMFILE);
}

TEST_F(Files, AreAskedForUntilTheTimeIsOver) {
  const std::vector<Caller::Wanted> many(100'000, {1, WantedFile::kSocket});
  constexpr std::chrono::milliseconds kLimit(1);
  EXPECT_EQ(admit()->take(many, kLimit, &used).error().code(), EMFILE)
      << "a worker may name any number of channels";
  EXPECT_GT(used, kLimit);
}

}  // namespace
}  // namespace vrdma::vrdmad
