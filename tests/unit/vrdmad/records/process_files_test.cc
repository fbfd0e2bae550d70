#include "vrdmad/records/process_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <vector>

#include "core/base/mapping.h"
#include "core/ipc/event_ends.h"
#include "vrdmad/broker/local_broker.h"

namespace vrdma::vrdmad {
namespace {

constexpr uint64_t kSize = 4096;

// The test's own process, as another daemon's client.
struct Files : testing::Test {
  // Each searches again.
  [[nodiscard]] ProcessFiles find() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    const base::Fd other(ends[0]);
    return {broker->admit(base::Fd(ends[1])).value().caller, account, &left, &used};
  }

  base::Fd memory = *base::make_memfd("vrdma-queues", kSize);
  base::Fd doorbell{::eventfd(0, EFD_CLOEXEC)};
  ipc::EventEnds events = *ipc::make_event_ends(1);
  Intake::AccountRef account = std::make_shared<Intake::Account>(nullptr);
  std::shared_ptr<LocalBroker> broker = std::make_shared<LocalBroker>();
  base::Duration left = ProcessFiles::kSearchTime, used{};
};

TEST_F(Files, AreFoundByWhatTheKernelCallsThem) {
  const auto found = find();
  const auto file = found.memory_file(file_id(memory), kSize);
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ(file_id(*file), file_id(memory));
  const auto bell = found.eventfd(eventfd_id(doorbell));
  ASSERT_TRUE(bell);
  EXPECT_EQ(eventfd_id(*bell), eventfd_id(doorbell));
  EXPECT_TRUE(found.event_end(file_id(events.write).inode));
  EXPECT_EQ(found.event_end(1).error().code(), ENOENT) << "it has none of that number";
  EXPECT_FALSE(found.memory_file(file_id(memory), kSize + 1)) << "it has another size";
}

TEST_F(Files, AreThoseThatMayBeWritten) {
  const base::Fd read_only = *memory.reopen(O_RDONLY);
  memory = base::Fd(::fcntl(memory.get(), F_DUPFD_CLOEXEC, read_only.get() + 1));  // behind it
  const auto file = find().memory_file(file_id(memory), kSize);
  ASSERT_TRUE(file);
  EXPECT_EQ(::fcntl(file->get(), F_GETFL) & O_ACCMODE, O_RDWR);
}

TEST_F(Files, AreNotFoundWhenTheyHaveGone) {
  const uint64_t bell = eventfd_id(doorbell);
  const auto before = find();
  EXPECT_TRUE(before.eventfd(bell));
  doorbell = base::Fd(::eventfd(0, EFD_CLOEXEC));  // with the same number
  EXPECT_FALSE(before.eventfd(bell));
  EXPECT_EQ(find().eventfd(bell).error().code(), ENOENT);
}

TEST_F(Files, AreSearchedUntilTheTimeIsOver) {
  std::vector<base::Fd> crowd;
  for (int i = 0; i < 500; ++i) crowd.emplace_back(::fcntl(memory.get(), F_DUPFD_CLOEXEC, 0));
  doorbell = base::Fd(::fcntl(doorbell.get(), F_DUPFD_CLOEXEC, crowd.back().get()));
  EXPECT_TRUE(find().eventfd(eventfd_id(doorbell))) << "it is behind many others";
  EXPECT_GT(used.count(), 0);
  EXPECT_EQ(left + used, ProcessFiles::kSearchTime);
  left = {};
  EXPECT_EQ(find().eventfd(eventfd_id(doorbell)).error().code(), EMFILE);
}

}  // namespace
}  // namespace vrdma::vrdmad
