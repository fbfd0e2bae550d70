// A session's two files: what is in which, and what is left of them.
#include "vrdmad/records/session_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/unit/vrdmad/admin/fixture.h"

namespace vrdma::vrdmad {
namespace {

constexpr uint32_t kNumber = 7;

Anchor anchor() {
  Anchor anchor{};
  anchor.session = kNumber;
  anchor.process.pid = 4711;
  anchor.arena = {1, 2};
  anchor.doorbell = 3;
  anchor.events = 4;
  return anchor;
}

struct BothFiles : testing::Test {
  const TempDir temp;
  [[nodiscard]] SessionFiles created() const {
    auto made = SessionFiles::create(temp.path(), anchor());
    EXPECT_TRUE(made) << made.error().message();
    if (!made) return {};
    made->journal->begin();
    return std::move(*made);
  }
  [[nodiscard]] base::Result<SessionFiles> opened() const {
    return SessionFiles::open(temp.path(), kNumber);
  }
  // As a worker opens them, which may write.
  [[nodiscard]] base::Result<SessionFiles> writable() const {
    const auto file = [](const std::string& path) {
      return base::Fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    };
    return SessionFiles::open(file(SessionFiles::anchors_path(temp.path(), kNumber)),
                              file(SessionFiles::journal_path(temp.path(), kNumber)));
  }
  [[nodiscard]] size_t count() const {
    namespace fs = std::filesystem;
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(temp.path()), fs::directory_iterator()));
  }
};

TEST_F(BothFiles, GiveTheNextDaemonAnImageAndItsAnchors) {
  {
    SessionFiles files = created();
    ipc::HandleReply pd{1};
    files.journal->put(Stored::kPd, 1, &pd, sizeof pd);
    files.anchors->put_channel(1, 99);
    files.journal->put(Stored::kChannel, 1, nullptr, 0);
    files.anchors->put_channel(2, 98);
    files.anchors->erase_channel(2);
    files.anchors->put_domain(5, {6, 7});
    files.anchors->put_packet_socket();
    files.anchors->put_shown({{{8, 9}, 10}, {{11, 12}, 13}, {{14, 15}, 16}});
    files.anchors->put_shown({{{8, 9}, 10}, {{14, 15}, 16}});
    files.anchors->put_epoch(12);
    files.keep();
  }
  auto files = opened();
  ASSERT_TRUE(files) << files.error().message();
  const SessionAnchors& anchors = files->anchors->anchors();
  EXPECT_EQ(anchors.of.process.pid, 4711);
  EXPECT_EQ(anchors.of.epoch, 12u);
  EXPECT_EQ(anchors.of.packet_socket, 1u);
  EXPECT_EQ(anchors.channels, (std::map<uint32_t, uint64_t>{{1, 99}}));
  EXPECT_EQ(anchors.domains.at(5), (FileId{6, 7}));
  EXPECT_EQ(anchors.shown, (std::vector<ShownFile>{{{8, 9}, 10}, {{14, 15}, 16}}));
  EXPECT_TRUE(files->journal->is_open());
  EXPECT_TRUE(files->journal->image().size() < 2048) << "control reads no object";
  const auto by_worker = writable();
  ASSERT_TRUE(by_worker) << by_worker.error().message();
  const auto image = SessionImage::decode(by_worker->journal->image());
  ASSERT_TRUE(image) << image.error().message();
  EXPECT_TRUE(image->served.at(Stored::kPd).contains(1));
  EXPECT_TRUE(image->channels.contains(1));
}

// What is portable names nothing of this host.
TEST_F(BothFiles, HaveNoAnchorInTheImage) {
  const SessionFiles files = created();
  files.anchors->put_channel(1, 0x1122334455667788);
  files.anchors->put_domain(1, {0x1122334455667788, 0x1122334455667788});
  const auto image = files.journal->image();
  const uint64_t inode = 0x1122334455667788;
  const auto* const bytes = reinterpret_cast<const uint8_t*>(&inode);
  EXPECT_EQ(std::search(image.begin(), image.end(), bytes, bytes + sizeof inode), image.end());
}

// A worker that was taken over writes what it likes while control reads.
TEST_F(BothFiles, AreReadAsCopies) {
  created().keep();
  auto files = opened();
  ASSERT_TRUE(files) << files.error().message();
  ASSERT_EQ(::truncate(SessionFiles::anchors_path(temp.path(), kNumber).c_str(), 0), 0);
  ASSERT_EQ(::truncate(SessionFiles::journal_path(temp.path(), kNumber).c_str(), 0), 0);
  EXPECT_EQ(files->anchors->anchors().of.process.pid, 4711);
  EXPECT_TRUE(files->journal->is_open());
  EXPECT_FALSE(opened()) << "there is nothing left";
}

TEST_F(BothFiles, AreNotReadIfTheyAreTooLarge) {
  created().keep();
  ASSERT_EQ(::truncate(SessionFiles::journal_path(temp.path(), kNumber).c_str(), 1ll << 34), 0);
  EXPECT_TRUE(opened()) << "its beginning tells what control needs";
  ASSERT_EQ(::truncate(SessionFiles::anchors_path(temp.path(), kNumber).c_str(), 1ll << 34), 0);
  EXPECT_EQ(opened().error().code(), EFBIG);
}

// Control asks the broker about each.
TEST_F(BothFiles, HaveABoundedNumberOfChannelsAndDomains) {
  constexpr uint32_t kMost = SessionAnchors::kMost;
  created().keep();
  const auto worker = writable();
  ASSERT_TRUE(worker) << worker.error().message();
  AnchorFile& anchors = *worker->anchors;
  for (uint32_t i = 0; i < kMost; ++i) {
    anchors.put_channel(i, i);
    anchors.put_domain(i, {i, i});
  }
  for (uint32_t i = 0; i < 5 * kMost; ++i) {
    anchors.erase_channel(i % kMost);
    anchors.put_channel(i % kMost, i);
  }
  const auto files = opened();
  ASSERT_TRUE(files) << files.error().message();
  EXPECT_EQ(files->anchors->anchors().channels.size(), kMost);
  EXPECT_EQ(files->anchors->anchors().domains.size(), kMost);
  anchors.put_channel(kMost, 1);
  EXPECT_EQ(opened().error().code(), E2BIG);
  anchors.erase_channel(kMost);
  EXPECT_TRUE(opened());
  anchors.put_domain(kMost, {1, 1});
  EXPECT_EQ(opened().error().code(), E2BIG);
}

TEST_F(BothFiles, NameTheirOwnSession) {
  created().keep();
  for (const char* suffix : {SessionFiles::kAnchors, SessionFiles::kJournal})
    std::filesystem::rename(temp.path() + "/" + std::to_string(kNumber) + suffix,
                            temp.path() + "/8" + suffix);
  EXPECT_EQ(SessionFiles::open(temp.path(), 8).error().code(), EINVAL);
}

TEST_F(BothFiles, BothGoWithTheSession) {
  { const SessionFiles files = created(); }
  EXPECT_EQ(count(), 0u);
  created().keep();
  EXPECT_EQ(count(), 2u);
  std::filesystem::remove(SessionFiles::anchors_path(temp.path(), kNumber));
  EXPECT_FALSE(opened()) << "without anchors";
}

}  // namespace
}  // namespace vrdma::vrdmad
