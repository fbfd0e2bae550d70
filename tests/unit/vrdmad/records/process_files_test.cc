#include "vrdmad/records/process_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <vector>

#include "core/base/mapping.h"
#include "core/ipc/event_ends.h"

namespace vrdma::vrdmad {
namespace {

constexpr uint64_t kSize = 4096;

// The test's own process, as another daemon's client.
struct Files : testing::Test {
  base::Fd memory = *base::make_memfd("vrdma-queues", kSize);
  base::Fd doorbell{::eventfd(0, EFD_CLOEXEC)};
  ipc::EventEnds events = *ipc::make_event_ends(1);
  base::Fd self{static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0))};
  Intake::AccountRef account = std::make_shared<Intake::Account>(nullptr);
  WantedFiles wanted{
      {file_id(memory).inode}, {eventfd_id(doorbell)}, {file_id(events.write).inode}};

  base::Result<ProcessFiles> find(base::Duration time = ProcessFiles::kSearchTime) {
    return ProcessFiles::of(::getpid(), self.get(), account, wanted, time);
  }
};

TEST_F(Files, AreFoundByWhatTheKernelCallsThem) {
  const auto found = find();
  ASSERT_TRUE(found) << found.error().message();
  const auto file = found->memory_file(file_id(memory), kSize);
  ASSERT_TRUE(file);
  EXPECT_EQ(file_id(*file), file_id(memory));
  const auto bell = found->eventfd(eventfd_id(doorbell));
  ASSERT_TRUE(bell);
  EXPECT_EQ(eventfd_id(*bell), eventfd_id(doorbell));
  EXPECT_TRUE(found->event_end(file_id(events.write).inode));
  EXPECT_FALSE(found->event_end(file_id(events.read).inode)) << "nobody wants it";
  EXPECT_FALSE(found->memory_file(file_id(memory), kSize + 1)) << "it has another size";
}

TEST_F(Files, AreThoseThatMayBeWritten) {
  const base::Fd read_only = *memory.reopen(O_RDONLY);
  memory = base::Fd(::fcntl(memory.get(), F_DUPFD_CLOEXEC, read_only.get() + 1));  // behind it
  const auto found = find();
  ASSERT_TRUE(found);
  const auto file = found->memory_file(file_id(memory), kSize);
  ASSERT_TRUE(file);
  EXPECT_EQ(::fcntl(file->get(), F_GETFL) & O_ACCMODE, O_RDWR);
}

TEST_F(Files, AreNotFoundWhenTheyHaveGone) {
  const uint64_t bell = eventfd_id(doorbell);
  const auto before = find();
  doorbell = base::Fd(::eventfd(0, EFD_CLOEXEC));  // with the same number
  ASSERT_TRUE(before);
  EXPECT_FALSE(before->eventfd(bell));
  const auto after = find();
  ASSERT_TRUE(after);
  EXPECT_EQ(after->eventfd(bell).error().code(), ENOENT);
}

TEST_F(Files, AreSearchedUntilAllAreFoundOrTheTimeIsOver) {
  std::vector<base::Fd> crowd;
  for (int i = 0; i < 500; ++i) crowd.emplace_back(::fcntl(self.get(), F_DUPFD_CLOEXEC, 0));
  doorbell = base::Fd(::fcntl(doorbell.get(), F_DUPFD_CLOEXEC, crowd.back().get()));
  const auto found = find();
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->eventfd(eventfd_id(doorbell))) << "it is behind many others";
  EXPECT_GT(found->time_used().count(), 0);
  const auto hurried = find(base::Duration(0));
  ASSERT_TRUE(hurried);
  EXPECT_EQ(hurried->eventfd(eventfd_id(doorbell)).error().code(), EMFILE);
}

}  // namespace
}  // namespace vrdma::vrdmad
