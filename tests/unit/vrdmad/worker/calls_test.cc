#include "vrdmad/worker/calls.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

namespace vrdma::vrdmad {
namespace {

// Compilers print a value of an enumeration by its name if it has one.
template <ipc::Call kCall>
constexpr bool has_name() {
  constexpr std::string_view kText = __PRETTY_FUNCTION__;
  return kText.find("Call::k") != std::string_view::npos;
}

TEST(Calls, HaveARowEach) {
  static_assert(has_name<ipc::kLastCall>());
  constexpr auto kNext = static_cast<ipc::Call>(static_cast<uint32_t>(ipc::kLastCall) + 1);
  static_assert(!has_name<kNext>(), "a call was added without a row");
  for (uint32_t number = 1; number <= static_cast<uint32_t>(ipc::kLastCall); ++number)
    EXPECT_EQ(static_cast<uint32_t>(traits_of(static_cast<ipc::Call>(number)).call), number);
}

TEST(Calls, FitIntoTheirMessages) {
  const ipc::Request request;
  const ipc::Reply reply;
  for (const CallTraits& row : calls::kTable) {
    EXPECT_LE(row.request, sizeof request.bytes);
    EXPECT_LE(row.reply, sizeof reply.bytes);
  }
  EXPECT_EQ(traits_of(ipc::Call::kModifyQp).request, sizeof request.modify_qp);
  EXPECT_EQ(traits_of(ipc::Call::kModifyQp).reply, sizeof reply.modify_qp);
  EXPECT_EQ(traits_of(ipc::Call::kCreateAh).request, sizeof request.create_ah);
  EXPECT_EQ(traits_of(ipc::Call::kDestroyQp).request, sizeof request.handle);
}

// What has no row asks for nothing, changes nothing, and is served to nobody.
TEST(Calls, OfOtherNumbersAreUnknown) {
  for (const uint32_t number : {0u, static_cast<uint32_t>(ipc::kLastCall) + 1, UINT32_MAX}) {
    const CallTraits& row = traits_of(static_cast<ipc::Call>(number));
    EXPECT_EQ(row.request, 0u);
    EXPECT_EQ(row.effect, CallTraits::kNone);
    EXPECT_EQ(row.beside, CallTraits::kNoFds);
    EXPECT_EQ(row.needs, CallTraits::kVdevice);
  }
}

// A session that is taken over asks to destroy what it had: its objects can be made and removed.
TEST(Calls, OfObjectsHaveAMakerAndARemover) {
  std::set<Stored> kinds;
  for (const CallTraits& row : calls::kTable) {
    if (row.effect != CallTraits::kMakes) continue;
    EXPECT_TRUE(kinds.insert(*row.stored).second) << "two calls make the same kind";
    EXPECT_EQ(&maker_of(*row.stored), &row);
    const CallTraits& remover = remover_of(*row.stored);
    EXPECT_EQ(remover.request, sizeof(ipc::HandleRequest));
    EXPECT_EQ(remover.needs, CallTraits::kSession) << "an object of a vdevice that has gone stays";
  }
  EXPECT_EQ(kinds,
            (std::set{Stored::kPd, Stored::kImportedPd, Stored::kXrcd, Stored::kChannel,
                      Stored::kCq, Stored::kAh, Stored::kMr, Stored::kImportedMr, Stored::kMw,
                      Stored::kSrq, Stored::kQp, Stored::kTarget, Stored::kFlow}));
  EXPECT_EQ(maker_of(Stored::kCqSize).call, ipc::Call::kResizeCq);
}

// An image has requests and replies in the shape that the calls have.
TEST(Calls, HaveTheShapeThatImagesHave) {
  size_t served = 0;
  for (uint16_t number = 0; number <= static_cast<uint16_t>(kLastStored); ++number) {
    const auto kind = static_cast<Stored>(number);
    const auto shape = shape_of(kind);
    if (!shape) continue;
    ++served;
    const CallTraits& maker = maker_of(kind);
    EXPECT_EQ(shape->call, maker.call);
    EXPECT_EQ(shape->request, maker.request);
    EXPECT_EQ(shape->reply, maker.reply);
  }
  EXPECT_EQ(served, 9u);
}

}  // namespace
}  // namespace vrdma::vrdmad
