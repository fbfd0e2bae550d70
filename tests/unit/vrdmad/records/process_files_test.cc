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
  // 0, or the error. `process`: each searches once.
  int take(ProcessFiles& files, const Caller& process, const std::vector<Caller::Wanted>& wanted) {
    const auto taken = files.take(process, wanted, &left, &used);
    return taken ? 0 : taken.error().code();
  }
  int take(const Caller::Wanted& wanted) {
    ProcessFiles files(account);
    return take(files, *admit(), {wanted});
  }

  base::Fd memory = *base::make_memfd("vrdma-queues", kSize);
  base::Fd doorbell{::eventfd(0, EFD_CLOEXEC)};
  ipc::EventEnds events = *ipc::make_event_ends(1);
  Intake::AccountRef account = std::make_shared<Intake::Account>(nullptr);
  std::shared_ptr<LocalBroker> broker = std::make_shared<LocalBroker>();
  base::Duration left = ProcessFiles::kSearchTime, used{};
};

TEST_F(Files, AreFoundByWhatTheKernelCallsThem) {
  ProcessFiles found(account);
  std::vector<Caller::Wanted> wanted(Broker::Request::kMostWanted, in_memory(memory));
  wanted.push_back({eventfd_id(doorbell), WantedFile::kEventfd});  // more than one request takes
  wanted.push_back({1, WantedFile::kSocket});
  wanted.push_back({file_id(events.write).inode, WantedFile::kSocket});
  ASSERT_EQ(take(found, *admit(), wanted), 0);
  const auto file = found.memory_file(file_id(memory), kSize);
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ(file_id(*file), file_id(memory));
  const auto bell = found.eventfd(eventfd_id(doorbell));
  ASSERT_TRUE(bell);
  EXPECT_EQ(eventfd_id(*bell), eventfd_id(doorbell));
  EXPECT_TRUE(found.event_end(file_id(events.write).inode));
  EXPECT_EQ(found.event_end(1).error().code(), ENOENT) << "it has none of that number";
  EXPECT_FALSE(found.memory_file(file_id(memory), kSize)) << "it is given once";
  ASSERT_EQ(take(found, *admit(), wanted), 0);
  EXPECT_FALSE(found.memory_file(file_id(memory), kSize + 1)) << "it has another size";
}

TEST_F(Files, AreThoseThatMayBeWritten) {
  const base::Fd read_only = *memory.reopen(O_RDONLY);
  memory = base::Fd(::fcntl(memory.get(), F_DUPFD_CLOEXEC, read_only.get() + 1));  // behind it
  ProcessFiles found(account);
  ASSERT_EQ(take(found, *admit(), {in_memory(memory)}), 0);
  const auto file = found.memory_file(file_id(memory), kSize);
  ASSERT_TRUE(file);
  EXPECT_EQ(::fcntl(file->get(), F_GETFL) & O_ACCMODE, O_RDWR);
}

TEST_F(Files, AreNotFoundWhenTheyHaveGone) {
  const Caller::Wanted bell{eventfd_id(doorbell), WantedFile::kEventfd};
  const auto process = admit();
  const auto has = [&](const Caller& whose) {
    ProcessFiles found(account);
    EXPECT_EQ(take(found, whose, {bell}), 0);
    return found.eventfd(bell.id).has_value();
  };
  EXPECT_TRUE(has(*process));
  doorbell = base::Fd();
  EXPECT_FALSE(has(*process)) << "it is closed";
  doorbell = *memory.duplicate();
  EXPECT_FALSE(has(*process)) << "another has its number";
  EXPECT_FALSE(has(*admit()));
}

TEST_F(Files, AreSearchedUntilTheTimeIsOver) {
  std::vector<base::Fd> crowd;
  for (int i = 0; i < 500; ++i) crowd.emplace_back(::fcntl(memory.get(), F_DUPFD_CLOEXEC, 0));
  doorbell = base::Fd(::fcntl(doorbell.get(), F_DUPFD_CLOEXEC, crowd.back().get()));
  const Caller::Wanted bell{eventfd_id(doorbell), WantedFile::kEventfd};
  EXPECT_EQ(take(bell), 0) << "it is behind many others";
  EXPECT_GT(used.count(), 0);
  EXPECT_EQ(left + used, ProcessFiles::kSearchTime);
  left = {};
  EXPECT_EQ(take(bell), EMFILE);
}

}  // namespace
}  // namespace vrdma::vrdmad
