// Posting, in either way of verbs.
#pragma once

#include "tests/integrity/device.h"

namespace integrity {

// Posts a request of `stream`, whose owner this is. `infos`: of all members.
void post(Device* device, const Endpoint& endpoint, const Stream& stream, const Op& op,
          const std::vector<Info>& infos, Random* random);
// Posts `count` receives of `stream`, of which this is the other end, from `first` on, by one call.
void post_receives(Device* device, const Endpoint& endpoint, const Stream& stream, size_t first,
                   size_t count);

}  // namespace integrity
