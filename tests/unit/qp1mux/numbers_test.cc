// Communication ids and free ports are unpredictable.
#include <vector>

#include "qp1mux/mux_state.h"
#include "qp1mux/port_table.h"
#include "tests/unit/core/base/unpredictable.h"
#include "tests/unit/qp1mux/rig.h"

namespace vrdma::qp1mux {
namespace {

struct Nobody final : Wire, Clock {
  void send(const Packet&) override {}
  [[nodiscard]] base::TimePoint now() const override { return {}; }
  void wake_at(base::TimePoint) override {}
};

TEST(Numbers, OfConnectionsAreUnpredictable) {
  Nobody nobody;
  MuxState one(Config{}, nobody, nobody), other(Config{}, nobody, nobody);
  std::vector<uint32_t> numbers, others;
  for (int i = 0; i < test::kSample; ++i) {
    numbers.push_back(one.new_id());
    others.push_back(other.new_id());
  }
  test::expect_unpredictable(numbers, others, 32);
  test::expect_even_bits(numbers, 0, 31);
  EXPECT_NE(one.transaction_base, other.transaction_base);
}

TEST(Numbers, OfFreePortsAreUnpredictable) {
  PortTable one, other;
  std::vector<PortTable::Binding> held;
  const auto take = [&](PortTable& table) {
    PortRequest request;
    request.address = gid("10.0.0.1");
    held.push_back(std::move(*table.bind(request)));
    return uint32_t{held.back().port()};
  };
  std::vector<uint32_t> numbers, others;
  for (int i = 0; i < test::kSample; ++i) {
    numbers.push_back(take(one));
    others.push_back(take(other));
  }
  test::expect_unpredictable(numbers, others, 16);
}

}  // namespace
}  // namespace vrdma::qp1mux
