#include "core/rdma/qp_numbers.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <vector>

#include "core/base/shared_page.h"
#include "core/rdma/device.h"

namespace vrdma::rdma {
namespace {

// So many that two draws of 24 bits each would have some in common.
constexpr int kMany = 20'000;

using Table = base::SharedPage<QpNumberTable>;

bool contains(const Table& table, uint32_t qpn) {
  return QpNumberReader(table.get()).contains(qpn);
}

struct OfANamespace : testing::Test {
  Table of_red = Table::make("test").value(), of_blue = Table::make("test").value();
  std::shared_ptr<QpNumberSpace> space = std::make_shared<QpNumberSpace>();
  Device red, blue;
  Qp one, other;
  OfANamespace() {
    red.qp_numbers = std::make_unique<QpNumbers>(space, of_red.get());
    blue.qp_numbers = std::make_unique<QpNumbers>(space, of_blue.get());
  }
};

TEST_F(OfANamespace, AreDifferentForAllItsVdevices) {
  std::set<uint32_t> all;
  for (int i = 0; i < kMany; ++i)
    for (Device* device : {&red, &blue}) EXPECT_TRUE(all.insert(device->take_qpn(&one)).second);
}

// The space of a new daemon begins anywhere.
TEST_F(OfANamespace, AreKeptAtATakeover) {
  std::set<uint32_t> old;
  Device before;
  for (int i = 0; i < kMany; ++i) old.insert(before.take_qpn(&one));
  for (const uint32_t qpn : old) EXPECT_TRUE(red.take_qpn(&one, qpn));
  for (int i = 0; i < kMany; ++i) EXPECT_FALSE(old.contains(blue.take_qpn(&one)));
}

// Daemons before gave numbers of their own to each vdevice.
TEST_F(OfANamespace, AreKeptIfTwoVdevicesHadTheSame) {
  EXPECT_TRUE(red.take_qpn(&one, 77));
  EXPECT_TRUE(blue.take_qpn(&other, 77));
  EXPECT_FALSE(blue.take_qpn(&other, 77));
  red.free_qpn(77);
  EXPECT_FALSE(contains(of_red, 77));
  EXPECT_TRUE(contains(of_blue, 77));
}

TEST(QpNumbers, AreFreeAfterTheirVdevice) {
  const auto space = std::make_shared<QpNumberSpace>(2);
  const QpNumbers kept(space);
  auto gone = std::make_unique<QpNumbers>(space);
  (void)gone->take();
  EXPECT_TRUE(kept.has_room());
  (void)gone->take();
  EXPECT_FALSE(kept.has_room());
  gone.reset();
  EXPECT_TRUE(kept.has_room());
}

TEST(QpNumbers, HaveASpaceForEachNamespace) {
  QpNumberSpaces spaces;
  const auto one = spaces.of(1);
  EXPECT_EQ(spaces.of(1), one);
  EXPECT_NE(spaces.of(2), one);
}

struct InATable : testing::Test {
  std::shared_ptr<QpNumberSpace> space = std::make_shared<QpNumberSpace>();
  Table table = Table::make("test").value();
  std::unique_ptr<QpNumbers> numbers = std::make_unique<QpNumbers>(space, table.get());
  [[nodiscard]] bool sees(uint32_t qpn) const { return contains(table, qpn); }
  [[nodiscard]] uint32_t end() const { return table->end(); }
};

TEST_F(InATable, AreSeenByTheirReader) {
  const uint32_t first = numbers->take(), second = numbers->take();
  EXPECT_TRUE(numbers->keep(77));
  for (const uint32_t qpn : {first, second, 77u}) EXPECT_TRUE(sees(qpn));
  EXPECT_FALSE(sees(78));
  numbers->remove(first);
  numbers->remove(first);
  numbers->remove(78);
  EXPECT_FALSE(sees(first));
  EXPECT_TRUE(sees(second));
  EXPECT_TRUE(sees(77));
}

TEST_F(InATable, UseTheLowestSlotsAgain) {
  std::vector<uint32_t> taken;
  for (int i = 0; i < 10; ++i) taken.push_back(numbers->take());
  EXPECT_EQ(end(), 10u);
  for (const size_t i : {7u, 3u}) numbers->remove(taken[i]);
  EXPECT_EQ(end(), 10u);
  const uint32_t again = numbers->take();
  EXPECT_EQ(table->slot(3), again);
  EXPECT_EQ(table->slot(7), 0u);
  for (const size_t i : {8u, 9u}) numbers->remove(taken[i]);
  EXPECT_EQ(end(), 7u);
  EXPECT_TRUE(sees(again));
  const uint32_t grown = numbers->take();
  EXPECT_EQ(table->slot(7), grown);
  EXPECT_EQ(end(), 8u);
}

TEST_F(InATable, AreNoMoreThanItHolds) {
  std::vector<uint32_t> taken;
  while (taken.size() < QpNumberTable::kCapacity) {
    ASSERT_TRUE(numbers->has_room());
    taken.push_back(numbers->take());
  }
  EXPECT_FALSE(numbers->has_room());
  EXPECT_TRUE(sees(taken.front()));
  EXPECT_TRUE(sees(taken.back()));
  uint32_t other = 2;
  while (std::find(taken.begin(), taken.end(), other) != taken.end()) ++other;
  EXPECT_FALSE(numbers->keep(other));
  numbers->remove(taken[5]);
  EXPECT_TRUE(numbers->keep(other));
}

// Another daemon's records name them.
TEST_F(InATable, AreOnlyThoseOfQueuePairs) {
  for (const uint32_t never : {0u, 1u, verbs::kMulticastQpn, 1u << 24, UINT32_MAX}) {
    EXPECT_FALSE(numbers->keep(never)) << never;
    EXPECT_FALSE(sees(never)) << never;
  }
  EXPECT_TRUE(numbers->keep(77));
  EXPECT_FALSE(numbers->keep(77)) << "twice";
  numbers->remove(77);
  EXPECT_FALSE(sees(77));
  EXPECT_FALSE(sees(0)) << "a free slot";
}

// Whatever the worker writes, its reader stays within the table.
TEST_F(InATable, AreReadFromATableOfNonsense) {
  table->end() = UINT32_MAX;
  EXPECT_FALSE(sees(5));
  EXPECT_FALSE(sees(0));
  table->slot(QpNumberTable::kCapacity - 1) = 5;
  EXPECT_TRUE(sees(5));
  table->slot(0) = 1;
  EXPECT_FALSE(sees(1)) << "queue pair 1 is not the vdevice's";
}

TEST_F(InATable, AreForgottenWithTheirWorker) {
  const uint32_t first = numbers->take(), second = numbers->take();
  // The worker has died: its destructors have not run.
  const std::unique_ptr<QpNumbers> dead = std::move(numbers);
  table->clear();
  EXPECT_FALSE(sees(first));
  QpNumbers next(std::make_shared<QpNumberSpace>(), table.get());
  const uint32_t only = next.take();
  EXPECT_TRUE(sees(only));
  EXPECT_FALSE(sees(second));
}

TEST_F(InATable, AreForgottenWithTheirVdevice) {
  const uint32_t qpn = numbers->take();
  numbers.reset();
  EXPECT_FALSE(sees(qpn));
}

TEST_F(InATable, TakeOnePageWhileTheyAreFew) {
  EXPECT_FALSE(sees(5));
  for (int i = 0; i < 100; ++i) numbers->remove(numbers->take());
  table->clear();
  struct stat status {};
  ASSERT_EQ(::fstat(table.file().get(), &status), 0);
  EXPECT_LE(status.st_blocks * 512, ::getpagesize());
}

TEST(QpNumberReader, SeesNothingWithoutATable) { EXPECT_FALSE(QpNumberReader().contains(5)); }

}  // namespace
}  // namespace vrdma::rdma
