#include "core/wire/icrc.h"

#include <libdeflate.h>

#include <array>

namespace vrdma::wire {

namespace {

constexpr uint32_t kSeed = 0x2144df1c;  // the CRC of eight bytes of ones
constexpr uint8_t kOnes = 0xff;

template <class Ip>
struct Covered {
  Ip ip;
  UdpHeader udp;
  Bth bth;
};

template <class Ip>
uint32_t begin(Covered<Ip>& headers) {
  static_assert(alignof(Covered<Ip>) == 1);
  headers.udp.checksum = 0xffff;
  headers.bth.congestion = kOnes;
  return libdeflate_crc32(kSeed, &headers, sizeof headers);
}

// Polynomials over GF(2), modulo that of the CRC; bit 31 is the coefficient of x^0.
constexpr uint32_t kOne = 0x80000000;
constexpr uint32_t kReflected = 0xedb88320;

constexpr uint32_t times(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (; a != 0; a <<= 1) {
    if ((a & kOne) != 0) product ^= b;
    b = (b & 1) != 0 ? b >> 1 ^ kReflected : b >> 1;
  }
  return product;
}

// x^(-8 * 2^k): takes 2^k bytes of zeros off the end of what the CRC was computed over.
constexpr std::array<uint32_t, 17> make_steps_back() {
  std::array<uint32_t, 17> steps{};
  uint32_t step = kOne;
  // To divide by x: the polynomial has a constant term, so it can be added where there is none.
  for (int i = 0; i < 8; ++i) step = (step & kOne) != 0 ? (step ^ kReflected) << 1 | 1 : step << 1;
  for (uint32_t& each : steps) {
    each = step;
    step = times(step, step);
  }
  return steps;
}
constexpr std::array<uint32_t, 17> kStepsBack = make_steps_back();

constexpr size_t kBehindId = sizeof(Ipv4Header) - offsetof(Ipv4Header, id) - 2 + sizeof(UdpHeader);
constexpr size_t kCrcBytes = 4;

}  // namespace

Icrc::Icrc(const Ipv4Header& ip, const UdpHeader& udp, const Bth& bth) {
  Covered<Ipv4Header> headers{ip, udp, bth};
  headers.ip.tos = headers.ip.ttl = kOnes;
  headers.ip.checksum = 0xffff;
  crc_ = begin(headers);
}

Icrc::Icrc(const Ipv6Header& ip, const UdpHeader& udp, const Bth& bth) {
  Covered<Ipv6Header> headers{ip, udp, bth};
  headers.ip.version_class_label = headers.ip.version_class_label | 0x0fffffff;
  headers.ip.hop_limit = kOnes;
  crc_ = begin(headers);
}

// Of a null pointer libdeflate returns the initial value.
void Icrc::add(const uint8_t* bytes, size_t size) {
  if (size > 0) crc_ = libdeflate_crc32(crc_, bytes, size);
}

// The difference is that of two packets of zeros, one of which has the identification: its two
// bytes times x^(8 * bytes behind them) times x^32.
std::optional<uint16_t> find_ipv4_id(uint32_t computed, uint32_t received, size_t covered) {
  uint32_t difference = computed ^ received;
  size_t behind = kBehindId + covered + kCrcBytes;
  if (behind >> kStepsBack.size() != 0) return std::nullopt;
  for (size_t k = 0; behind != 0; ++k, behind >>= 1)
    if ((behind & 1) != 0) difference = times(kStepsBack[k], difference);
  if ((difference & 0xffff) != 0) return std::nullopt;
  return static_cast<uint16_t>((difference >> 16 & 0xff) << 8 | difference >> 24);
}

}  // namespace vrdma::wire
