#include "tests/conformance/memory.h"

#include <cstring>

namespace conformance {

ibv_sge Region::sge(size_t offset, size_t length) const {
  return {reinterpret_cast<uint64_t>(data) + offset, static_cast<uint32_t>(length), mr->lkey};
}

Remote Region::remote() const { return {reinterpret_cast<uint64_t>(data), size, mr->rkey, 0}; }

Region enroll(const Side& side, void* data, size_t size, int access) {
  ibv_mr* mr = ibv_reg_mr(side.pd, data, size, access);
  CHECK(mr != nullptr);
  return {static_cast<uint8_t*>(data), size, mr};
}

void release(const Region& region) { CHECK_EQ(ibv_dereg_mr(region.mr), 0); }

void exercise(Pair& pair, const Region& region, uint64_t salt) {
  const Side& side = pair.side;
  const Remote remote = side.exchange(region.remote());
  CHECK_EQ(remote.size, region.size);
  const size_t half = region.size / 2;
  // WRITE the first half, READ the second.
  fill(region.data, region.size, side.is_a() ? salt : salt + 1);
  side.meet(1);
  if (side.is_a()) {
    pair.qp.write(1, {region.sge(0, half)}, remote);
    pair.cq.expect(1);
    pair.qp.read(2, {region.sge(half, region.size - half)}, remote, half);
    pair.cq.expect(2);
    check_filled(region.data, half, salt);
    check_filled(region.data + half, region.size - half, salt + 1, half);
  }
  side.meet(2);
  if (!side.is_a()) {
    check_filled(region.data, half, salt);
    check_filled(region.data + half, region.size - half, salt + 1, half);
  }
  side.meet(3);
  // Atomics on the first aligned word.
  const size_t word = 8 - reinterpret_cast<uintptr_t>(region.data) % 8;
  const uint64_t start = 1000 + salt;
  if (!side.is_a()) std::memcpy(region.data + word, &start, 8);
  const auto places = side.exchange(static_cast<uint64_t>(word));
  side.meet(4);
  if (side.is_a()) {
    uint64_t old = 0;
    pair.qp.fetch_add(3, region.sge(word, 8), remote, places, 5);
    pair.cq.expect(3);
    std::memcpy(&old, region.data + word, 8);
    CHECK_EQ(old, start);
    pair.qp.compare_swap(4, region.sge(word, 8), remote, places, start + 5, start * 2);
    pair.cq.expect(4);
    std::memcpy(&old, region.data + word, 8);
    CHECK_EQ(old, start + 5);
  }
  side.meet(5);
  if (!side.is_a()) {
    uint64_t now = 0;
    std::memcpy(&now, region.data + word, 8);
    CHECK_EQ(now, start * 2);
    pair.qp.receive(5, {region.sge(0, region.size)});
  }
  side.meet(6);
  if (side.is_a()) {
    fill(region.data, region.size, salt + 100);
    pair.qp.send(6, {region.sge(0, 1), region.sge(1, region.size - 1)});
    pair.cq.expect(6);
  } else {
    CHECK_EQ(pair.cq.expect(5).byte_len, region.size);
    check_filled(region.data, region.size, salt + 100);
  }
  side.meet(7);
}

void exercise_read_only(Pair& pair, const Region& region, uint64_t key) {
  const Side& side = pair.side;
  const Remote remote = side.exchange(region.remote());
  Buffer plain(side, region.size);
  if (side.is_a()) {
    pair.qp.read(1, {plain.sge(0, remote.size)}, remote);
    pair.cq.expect(1);
    check_filled(plain.data, remote.size, key);
    side.meet(1);
    pair.qp.send(2, {region.sge(0, region.size)});
    pair.cq.expect(2);
  } else {
    pair.qp.receive(3, {plain.sge(0, region.size)});
    side.meet(1);
    pair.cq.expect(3);
    check_filled(plain.data, region.size, key);
  }
  side.meet(2);
}

}  // namespace conformance
