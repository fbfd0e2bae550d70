#include "vrdmad/control/counter_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>

#include "tests/unit/vrdmad/admin/fixture.h"

namespace vrdma::vrdmad {
namespace {

// Files whose content is how often they were refreshed, and a program that reads them.
class CounterFilesTest : public testing::Test {
 protected:
  static constexpr base::Duration kShort = std::chrono::milliseconds(50);
  void begin(base::Duration period) {
    leases_ = ReadLeases::start(*loop_).value();
    std::map<std::string, base::Fd> open;
    for (const char* const name : {"a", "b"}) {
      base::Fd fd(::open(path(name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0444));
      ASSERT_EQ(::write(fd.get(), "0\n", 2), 2);
      open[name] = std::move(fd);
    }
    files_ = std::make_unique<CounterFiles>(
        *loop_, *leases_, std::move(open),
        [this](const std::function<void(CounterFiles::Values)>& then) {
          ++asked_;
          then({{"a", number(asked_)}, {"b", 1}, {"c", 2}});
        },
        period);
  }
  [[nodiscard]] std::string path(const std::string& name) const {
    return temp_.path() + "/" + name;
  }
  // Of "a", when that was asked for the `asked`th time: long and short in turn.
  static uint64_t number(uint64_t asked) { return asked % 2 == 1 ? 1000 + asked : asked; }
  static std::string text(uint64_t asked) { return std::to_string(number(asked)) + "\n"; }
  static std::string read(int fd) {
    std::array<char, 64> text{};
    const ssize_t length = ::pread(fd, text.data(), text.size(), 0);
    return {text.data(), static_cast<size_t>(std::max<ssize_t>(length, 0))};
  }
  [[nodiscard]] std::string read(const std::string& name) const {
    return read(base::Fd(::open(path(name).c_str(), O_RDONLY | O_CLOEXEC)).get());
  }
  // `program` is another thread, as if it were another process: the loop goes on meanwhile.
  template <class F>
  void beside(F program) {
    std::thread thread([&] {
      program();
      loop_->stop();
    });
    loop_->run();
    thread.join();
  }
  void pass(base::Duration time) {
    const auto timer = loop_->after(time, [this] { loop_->stop(); });
    loop_->run();
  }

  const TempDir temp_;
  std::unique_ptr<base::EventLoop> loop_ = base::EventLoop::create().value();
  std::unique_ptr<ReadLeases> leases_;
  std::unique_ptr<CounterFiles> files_;
  uint64_t asked_ = 0;
};

TEST_F(CounterFilesTest, nobody_is_asked_before_a_program_opens_one) {
  begin(std::chrono::hours(1));
  pass(kShort);
  EXPECT_EQ(asked_, 0U);
  std::string first, other;
  beside([&] {
    first = read("a");
    other = read("b");
  });
  EXPECT_EQ(first, text(1)) << "what is so now, also for the first reader";
  EXPECT_EQ(other, "1\n");
  EXPECT_EQ(asked_, 1U) << "for all of them at once";
}

TEST_F(CounterFilesTest, after_a_while_nothing_happens_and_the_next_reader_asks_again) {
  begin(kShort);
  beside([&] { (void)read("a"); });
  pass(3 * kShort);
  const uint64_t at_rest = asked_;
  EXPECT_LE(at_rest, 2U);
  pass(3 * kShort);
  EXPECT_EQ(asked_, at_rest);
  std::string again;
  beside([&] { again = read("a"); });
  EXPECT_EQ(again, text(at_rest + 1));
}

TEST_F(CounterFilesTest, a_file_that_stays_open_follows) {
  begin(kShort);
  base::Fd fd;
  beside([&] { fd = base::Fd(::open(path("a").c_str(), O_RDONLY | O_CLOEXEC)); });
  EXPECT_EQ(read(fd.get()), text(1));
  uint64_t seen = asked_;
  for (int i = 0; i < 100 && seen < 4; ++i) {
    pass(kShort);
    if (asked_ == seen) continue;
    seen = asked_;
    EXPECT_EQ(read(fd.get()), text(seen)) << "and nothing of a longer number before it";
  }
  EXPECT_GE(seen, 4U);
  fd.reset();
  pass(3 * kShort);
  const uint64_t at_rest = asked_;
  pass(3 * kShort);
  EXPECT_EQ(asked_, at_rest) << "it is closed";
}

TEST_F(CounterFilesTest, when_they_go_no_program_waits) {
  begin(kShort);
  files_ = nullptr;
  EXPECT_EQ(read("a"), "0\n") << "on this very thread";
}

}  // namespace
}  // namespace vrdma::vrdmad
