#include "vrdmad/records/record_file.h"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "tests/unit/vrdmad/admin/fixture.h"

namespace vrdma::vrdmad {
namespace {

constexpr uint32_t kFormat = 7;

struct RecordFiles : testing::Test {
  TempDir temp;
  const std::string path = temp.path() + "/1.test";
  std::unique_ptr<RecordFile> file = std::move(RecordFile::create(path, kFormat).value());

  void put(uint16_t kind, uint32_t number, const std::string& text) {
    file->put(kind, number, text.data(), text.size(), 9);
  }
  // As the next daemon does after its owner was killed.
  void reopen() {
    file->keep();
    file.reset();
    auto again = RecordFile::open(path, kFormat);
    ASSERT_TRUE(again) << again.error().message();
    file = std::move(*again);
  }
  std::string all(uint16_t kind) {
    std::string text;
    for (const auto& record : file->all(kind))
      text += std::to_string(record.number) + "=" +
              std::string(reinterpret_cast<const char*>(record.data), record.size) + " ";
    return text;
  }
};

TEST_F(RecordFiles, KeepWhatWasPutLast) {
  put(1, 2, "b");
  put(1, 1, "a");
  put(2, 1, "other");
  put(1, 2, "longer than before");
  put(1, 3, "c");
  file->erase(1, 3);
  file->erase(1, 4);  // does not exist
  file->commit();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(all(1), "1=a 2=longer than before ");
    EXPECT_EQ(all(2), "1=other ");
    EXPECT_EQ(file->find(1, 1)->tag, 9u);
    EXPECT_FALSE(file->find(1, 3));
    reopen();
  }
  file.reset();
  EXPECT_TRUE(std::filesystem::exists(path)) << "no daemon has taken it over yet";
  file = std::move(*RecordFile::open(path, kFormat));
  file->keep(false);
  file.reset();
  EXPECT_FALSE(std::filesystem::exists(path)) << "its owner removes it";
}

TEST_F(RecordFiles, ForgetWhatWasNotCommitted) {
  put(1, 1, "before");
  put(1, 2, "before");
  file->commit();
  put(1, 1, "after");
  put(1, 3, "after");
  file->erase(1, 2);
  EXPECT_EQ(all(1), "1=after 3=after ");
  reopen();
  EXPECT_EQ(all(1), "1=before 2=before ");
  put(1, 4, "more");
  file->commit();
  reopen();
  EXPECT_EQ(all(1), "1=before 2=before 4=more ");
}

TEST_F(RecordFiles, DoNotGrowWithWhatHasGone) {
  const std::string bytes(200, 'x');
  for (uint32_t i = 1; i <= 50; ++i) put(1, i, bytes);
  for (uint32_t i = 0; i < 100'000; ++i) {
    put(2, 1, std::to_string(i));
    if (i % 3 == 0) {
      file->erase(2, 1);
    }
    file->commit();
  }
  file->area()[5] = 42;
  put(2, 1, "the last");
  file->commit();
  EXPECT_LT(std::filesystem::file_size(path), 200'000u);
  reopen();
  EXPECT_EQ(all(2), "1=the last ");
  EXPECT_EQ(file->all(1).size(), 50u);
  EXPECT_EQ(file->area()[5], 42);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(temp.path()), {}), 1);
}

TEST_F(RecordFiles, GiveBackTheirRoom) {
  const std::string bytes(1000, 'x');
  for (uint32_t i = 1; i <= 20'000; ++i) {
    put(1, i, bytes);
    file->commit();
  }
  EXPECT_GT(std::filesystem::file_size(path), 20'000'000u);
  for (uint32_t i = 2; i <= 20'000; ++i) {
    file->erase(1, i);
    file->commit();
  }
  for (uint32_t i = 0; i < 5000; ++i) {
    put(2, 1, bytes);
    file->commit();
  }
  EXPECT_LT(std::filesystem::file_size(path), 500'000u);
  reopen();
  EXPECT_EQ(all(1), "1=" + bytes + " ");
  EXPECT_EQ(all(2), "1=" + bytes + " ");
}

TEST_F(RecordFiles, AreOfOneFormat) {
  file->keep();
  file.reset();
  EXPECT_EQ(RecordFile::open(path, kFormat + 1).error().code(), EPROTO);
  EXPECT_TRUE(RecordFile::open(path, kFormat)) << "another version may read it";
}

TEST_F(RecordFiles, AreCopiedWithinLimits) {
  for (uint32_t i = 0; i < 10; ++i) put(1, i, "current");
  for (uint32_t i = 0; i < 10; ++i) put(2, 1, "one of them");
  file->commit();
  const auto code = [&](const RecordFile::Limits& limits) {
    const auto copy = RecordFile::copy(path, kFormat, limits);
    return copy ? 0 : copy.error().code();
  };
  EXPECT_EQ(code({}), 0);
  EXPECT_EQ(code({3, 20}), 0);
  EXPECT_EQ(code({2, 20}), EINVAL) << "a kind that there is not";
  EXPECT_EQ(code({3, 19}), E2BIG);
}

TEST_F(RecordFiles, RefuseWhatIsNone) {
  EXPECT_FALSE(RecordFile::create(path, kFormat)) << "a file of that name exists";
  file->keep();
  std::filesystem::resize_file(path, 100);
  EXPECT_EQ(RecordFile::open(path, kFormat).error().code(), EINVAL);
  EXPECT_FALSE(RecordFile::open(temp.path() + "/none", kFormat));
}

TEST_F(RecordFiles, AreOfNoUseOnceThereIsNoRoom) {
  put(1, 1, "before");
  file->commit();
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit none{1u << 16, limit.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  EXPECT_EQ(file->forbidden(), "");
  put(1, 2, "of the same change");
  put(1, 3, std::string(1u << 17, 'x'));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(file->forbidden(), "the run directory has no space for its state");
  put(1, 4, "after");
  file->commit();
  file->forbid("another reason");
  reopen();
  EXPECT_EQ(all(1), "1=before ") << "half a change took effect";
  EXPECT_EQ(file->forbidden(), "the run directory has no space for its state");
}

}  // namespace
}  // namespace vrdma::vrdmad
