// The image of a session, as the next daemon decodes it. What is accepted encodes to bytes that
// decode to the same image.
//
// The input is the bytes of an image; those of the corpus are images that the unit test's sessions
// have. Random bytes seldom have the magic number and the version, so these are put in front.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "vrdmad/records/session_image.h"

namespace {

using namespace vrdma;  // NOLINT(google-build-using-namespace): a fuzz target
using vrdmad::SessionImage;

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint8_t> bytes(data, data + size);
  const std::vector<uint8_t> empty = SessionImage{}.encode();
  constexpr size_t kMagicAndVersion = 12;
  if (bytes.size() >= kMagicAndVersion) std::copy_n(empty.begin(), kMagicAndVersion, bytes.begin());
  const auto image = SessionImage::decode(bytes);
  if (!image) return 0;
  const std::vector<uint8_t> encoded = image->encode();
  const auto again = SessionImage::decode(encoded);
  require(again.has_value());
  require(again->encode() == encoded);
  for (const auto& [kind, objects] : image->served)
    for (const auto& [handle, object] : objects) require(object.made.reply.handle.handle == handle);
  return 0;
}
