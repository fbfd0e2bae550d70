// The image of a session of rdma_cm, as a vrdmad elsewhere decodes it. What is accepted encodes to
// bytes that decode to the same image, and has what its readers rely on.
//
// The input is the bytes of an image. Random bytes seldom have the magic number, the version and
// the checksum, so these are put in front.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "qp1mux/record.h"
#include "vrdmad/records/cm_session_image.h"

namespace {

using namespace vrdma;  // NOLINT(google-build-using-namespace): a fuzz target
using vrdmad::CmSessionImage;

void require(bool holds) {
  if (!holds) std::abort();
}

// As the format has it: magic, version, reserved; the checksum of what follows; the rest.
void make_whole(std::vector<uint8_t>* bytes) {
  constexpr size_t kSum = 16, kRest = 24;
  const std::vector<uint8_t> empty = CmSessionImage{}.encode();
  if (bytes->size() < empty.size()) return;
  std::copy_n(empty.begin(), kSum, bytes->begin());
  uint64_t sum = 0xcbf29ce484222325;
  for (size_t i = kRest; i < bytes->size(); ++i) sum = (sum ^ (*bytes)[i]) * 0x100000001b3;
  std::memcpy(bytes->data() + kSum, &sum, sizeof sum);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint8_t> bytes(data, data + size);
  make_whole(&bytes);
  const auto image = CmSessionImage::decode(bytes);
  if (!image) return 0;
  const std::vector<uint8_t> encoded = image->encode();
  const auto again = CmSessionImage::decode(encoded);
  require(again.has_value());
  require(again->encode() == encoded);
  for (const auto& [handle, id] : image->ids) {
    require(handle != 0 && qp1mux::is_sound(id.record.id));
    require((id.record.node_guid != 0) == (id.record.id.route.endpoint != nullptr));
  }
  for (const auto& event : image->events) require(event.param.length <= ipc::kCmPrivateData);
  require(image->vdevices.size() <= CmSessionImage::kMostVdevices);
  return 0;
}
