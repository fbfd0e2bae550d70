// Management datagrams, which queue pair 1 sends and receives.
//
// A MAD has 256 bytes: this header and 232 bytes that its class defines. The bytes may come from
// any sender: of a Mad only the length is certain.
//
// Source: IBTA 13.4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/base/endian.h"

namespace vrdma::wire {

constexpr uint32_t kGsiQpn = 1;
constexpr uint32_t kGsiQkey = 0x80010000;
constexpr uint16_t kDefaultPkey = 0xffff;

struct MadHeader {
  uint8_t base_version;
  uint8_t management_class;
  uint8_t class_version;
  uint8_t method;
  base::ub16 status;
  base::ub16 class_specific;
  base::ub64 transaction_id;
  base::ub16 attribute_id;
  base::ub16 reserved;
  base::ub32 attribute_modifier;
};
static_assert(sizeof(MadHeader) == 24 && alignof(MadHeader) == 1);
static_assert(offsetof(MadHeader, transaction_id) == 8);
static_assert(offsetof(MadHeader, attribute_id) == 16);

constexpr uint8_t kMadBaseVersion = 1;
constexpr size_t kMadBytes = 256;
constexpr size_t kMadBody = kMadBytes - sizeof(MadHeader);

struct Mad {
  MadHeader header;
  uint8_t body[kMadBody];

  // The body as the message type that the header names; T is a message of a class.
  template <class T>
  [[nodiscard]] const T& as() const {
    static_assert(sizeof(T) == kMadBody && alignof(T) == 1);
    return reinterpret_cast<const T&>(body);
  }
  template <class T>
  [[nodiscard]] T& as() {
    static_assert(sizeof(T) == kMadBody && alignof(T) == 1);
    return reinterpret_cast<T&>(body);
  }
};
static_assert(sizeof(Mad) == kMadBytes && alignof(Mad) == 1);

}  // namespace vrdma::wire
