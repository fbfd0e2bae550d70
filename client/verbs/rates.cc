// Static rates: the enumeration, multiples of 2.5 Gb/s, and Mb/s.
#include <infiniband/verbs.h>

#include "client/dial/export.h"

namespace {

struct Rate {
  ibv_rate rate;
  int multiple;  // of 2.5 Gb/s; -1: undefined in libibverbs
  int mbps;      // as signalled: FDR and later use 64b/66b coding, so "14" is 14.0625
};

constexpr Rate kRates[] = {
    {IBV_RATE_2_5_GBPS, 1, 2500},       {IBV_RATE_5_GBPS, 2, 5000},
    {IBV_RATE_10_GBPS, 4, 10000},       {IBV_RATE_20_GBPS, 8, 20000},
    {IBV_RATE_30_GBPS, 12, 30000},      {IBV_RATE_40_GBPS, 16, 40000},
    {IBV_RATE_60_GBPS, 24, 60000},      {IBV_RATE_80_GBPS, 32, 80000},
    {IBV_RATE_120_GBPS, 48, 120000},    {IBV_RATE_14_GBPS, -1, 14062},
    {IBV_RATE_56_GBPS, -1, 56250},      {IBV_RATE_112_GBPS, -1, 112500},
    {IBV_RATE_168_GBPS, -1, 168750},    {IBV_RATE_25_GBPS, -1, 25781},
    {IBV_RATE_100_GBPS, -1, 103125},    {IBV_RATE_200_GBPS, -1, 206250},
    {IBV_RATE_300_GBPS, -1, 309375},    {IBV_RATE_28_GBPS, 11, 28125},
    {IBV_RATE_50_GBPS, 20, 53125},      {IBV_RATE_400_GBPS, 160, 425000},
    {IBV_RATE_600_GBPS, 240, 637500},   {IBV_RATE_800_GBPS, 320, 850000},
    {IBV_RATE_1200_GBPS, 480, 1275000},
};

// The field `wanted` of the row whose `key` is `value`; `otherwise` if there is no such row.
template <class Key, class Wanted>
Wanted look_up(Key Rate::*key, Key value, Wanted Rate::*wanted, Wanted otherwise) {
  for (const Rate& row : kRates)
    if (row.*key == value) return row.*wanted;
  return otherwise;
}

}  // namespace

VRDMA_EXPORT int ibv_rate_to_mult(ibv_rate rate) {
  return look_up(&Rate::rate, rate, &Rate::multiple, -1);
}

VRDMA_EXPORT ibv_rate mult_to_ibv_rate(int mult) {
  if (mult < 0) return IBV_RATE_MAX;
  return look_up(&Rate::multiple, mult, &Rate::rate, IBV_RATE_MAX);
}

VRDMA_EXPORT int ibv_rate_to_mbps(ibv_rate rate) {
  return look_up(&Rate::rate, rate, &Rate::mbps, -1);
}

VRDMA_EXPORT ibv_rate mbps_to_ibv_rate(int mbps) {
  return look_up(&Rate::mbps, mbps, &Rate::rate, IBV_RATE_MAX);
}
