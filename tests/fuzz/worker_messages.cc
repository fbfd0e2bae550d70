// The messages of control and workers as bytes: what a decoder accepts, it understood completely.
#include <algorithm>
#include <cstdlib>

#include "vrdmad/worker/messages_codec.h"

namespace {

using namespace vrdma::vrdmad;  // NOLINT(google-build-using-namespace): a fuzz target

template <class Decode>
void check(std::span<const uint8_t> bytes, Decode decode) {
  const auto message = decode(bytes);
  if (!message) return;
  const auto again = encode(*message);
  if (!again || !std::ranges::equal(*again, bytes)) std::abort();
  if (decode(*again) != message) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span bytes(data, size);
  check(bytes, decode_to_worker);
  check(bytes, decode_to_control);
  return 0;
}
