// Which users may be one person: a user with subordinate ones (subuid(5)) can act as any of them.
#pragma once

#include <sys/types.h>

namespace vrdma::vrdmad {

// A person may have 65,536 subordinate users, which lie in two of these ranges.
constexpr uid_t kUsersOfRange = 65536;

// The first user of a range, or the user itself below all ranges.
[[nodiscard]] constexpr uid_t person_of(uid_t user) {
  return user < kUsersOfRange ? user : user - user % kUsersOfRange;
}

}  // namespace vrdma::vrdmad
