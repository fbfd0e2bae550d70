// Device memory: reached by copying and by verbs, with offsets for addresses.
#include <cerrno>
#include <vector>

#include "tests/conformance/queue.h"

namespace conformance {

namespace {

ibv_dm* allocate(const Side& side, size_t length, uint32_t comp_mask = 0) {
  ibv_alloc_dm_attr attr{};
  attr.length = length;
  attr.comp_mask = comp_mask;
  errno = 0;
  return ibv_alloc_dm(side.context, &attr);
}

size_t most(const Side& side) {
  ibv_device_attr_ex attr{};
  CHECK_EQ(ibv_query_device_ex(side.context, nullptr, &attr), 0);
  if (attr.max_dm_size == 0) skip("the device has no memory");
  return attr.max_dm_size;
}

}  // namespace

CONFORMANCE_TEST(memory, device_memory_has_bounds) {
  const size_t all = most(side);
  CHECK(allocate(side, all + 1) == nullptr);
  CHECK(allocate(side, 64, 1u << 30) == nullptr);
  CHECK_EQ(errno, EINVAL);
  ibv_dm* dm = allocate(side, all);
  CHECK(dm != nullptr);
  CHECK(allocate(side, 64) == nullptr);
  CHECK_EQ(errno, ENOMEM);
  std::vector<uint8_t> bytes(all + 4, 1);
  CHECK_EQ(ibv_memcpy_to_dm(dm, 0, bytes.data(), all), 0);
  for (const auto& [offset, length] : std::vector<std::pair<size_t, size_t>>{
           {3, 4}, {4, 3}, {all, 4}, {all - 4, 8}, {0, all + 4}}) {
    CHECK(ibv_memcpy_to_dm(dm, offset, bytes.data(), length) != 0);
    CHECK(ibv_memcpy_from_dm(bytes.data(), dm, offset, length) != 0);
  }
  constexpr unsigned kAccess = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE;
  CHECK(ibv_reg_dm_mr(side.pd, dm, 0, all + 4, kAccess) == nullptr);
  CHECK(ibv_reg_dm_mr(side.pd, dm, 4, all, kAccess) == nullptr);
  ibv_mr* mr = ibv_reg_dm_mr(side.pd, dm, 4, all - 4, kAccess);
  CHECK(mr != nullptr);
  CHECK_EQ(ibv_free_dm(dm), EBUSY);
  CHECK_EQ(ibv_dereg_mr(mr), 0);
  CHECK_EQ(ibv_free_dm(dm), 0);
  dm = allocate(side, all);
  CHECK(dm != nullptr);
  CHECK_EQ(ibv_free_dm(dm), 0);
}

// a writes from its device memory into b's, and reads it back.
CONFORMANCE_TEST(memory, device_memory_by_verbs) {
  constexpr size_t kSize = 8192, kAt = 4096, kLength = 1000;
  if (most(side) < kSize) skip("the device has too little memory");
  ibv_dm* dm = allocate(side, kSize);
  CHECK(dm != nullptr);
  ibv_mr* mr = ibv_reg_dm_mr(side.pd, dm, kAt, kAt,
                             static_cast<unsigned>(kAllAccess) | IBV_ACCESS_ZERO_BASED);
  CHECK(mr != nullptr);
  {
    Cq cq(side);
    Qp qp(side, cq);
    qp.connect();
    const Remote remote = side.exchange(Remote{0, kAt, mr->rkey, 0});
    std::vector<uint8_t> bytes(kLength);
    const auto check = [&](size_t at) {
      bytes.assign(kLength, 0);
      CHECK_EQ(ibv_memcpy_from_dm(bytes.data(), dm, at, kLength), 0);
      check_filled(bytes.data(), kLength, 5);
    };
    if (side.is_a()) {
      fill(bytes.data(), kLength, 5);
      CHECK_EQ(ibv_memcpy_to_dm(dm, kAt, bytes.data(), kLength), 0);
      qp.write(1, {{0, kLength, mr->lkey}}, remote, 512);
      cq.expect(1);
      qp.read(2, {{2048, kLength, mr->lkey}}, remote, 512);
      cq.expect(2);
      check(kAt + 2048);
    }
    side.meet(1);
    if (!side.is_a()) check(kAt + 512);
    side.meet(2);
  }
  CHECK_EQ(ibv_dereg_mr(mr), 0);
  CHECK_EQ(ibv_free_dm(dm), 0);
}

}  // namespace conformance
