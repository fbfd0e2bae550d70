#include "core/ipc/export_state.h"

#include <gtest/gtest.h>

namespace vrdma::ipc {
namespace {

TEST(ExportState, gives_back_what_the_program_says) {
  ExportState state;
  state.set_vmm(true);
  EXPECT_FALSE(state.read()) << "it is not exported";
  state.begin("/run/vm0.sock", DoorbellMode::kTrap);
  state.set_driver(20);
  const ExportCounts counts{1, 2, 3, 4, 5, 6, 7, 8, 9, UINT64_MAX};
  state.set_counts(counts);
  EXPECT_EQ(state.read(), (Export{"/run/vm0.sock", true, DoorbellMode::kTrap, 20, counts}));
  state.set_vmm(false);
  state.set_driver(std::nullopt);
  EXPECT_EQ(state.read(), (Export{"/run/vm0.sock", false, DoorbellMode::kTrap, {}, counts}));
}

TEST(ExportState, bounds_the_path) {
  ExportState state;
  state.begin(std::string(1000, 'x'), DoorbellMode::kTrap);
  EXPECT_EQ(state.read()->socket, std::string(ExportState::kMostPath, 'x'));
}

// The arena is the program's.
TEST(ExportState, reads_whatever_bytes_there_are) {
  alignas(ExportState) std::array<unsigned char, sizeof(ExportState) + 64> bytes;
  bytes.fill(0xff);
  const auto& state = *reinterpret_cast<const ExportState*>(bytes.data());
  const auto read = state.read();
  ASSERT_TRUE(read);
  EXPECT_EQ(read->socket, std::string(ExportState::kMostPath, '\xff'));
  EXPECT_EQ(read->mode, DoorbellMode::kUnknown);
  EXPECT_EQ(read->driver, UINT32_MAX);
  EXPECT_EQ(read->counts.events_lost, UINT64_MAX);
  bytes.fill(0);
  EXPECT_FALSE(state.read());
}

}  // namespace
}  // namespace vrdma::ipc
