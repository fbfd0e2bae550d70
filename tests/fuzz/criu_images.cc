// The files of the CRIU plugin beside the images of a process, and of a container's mounts. What is
// decoded is within the limits, and is the same when it is encoded and decoded again.
#include <cstdlib>

#include "cli/criu/image.h"
#include "cli/criu/mounts.h"

namespace {

void try_mounts(const std::string& bytes) {
  using namespace vrdma::cli::criu;
  const auto mounts = decode_mounts(bytes);
  if (!mounts) return;
  for (const HostMount& one : *mounts)
    if (source_of(one, {"/l", "/r"}, 7).find("/../") != std::string::npos) std::abort();
  const auto again = decode_mounts(encode(*mounts));
  if (!again || *again != *mounts) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using vrdma::cli::criu::Image;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  try_mounts(bytes);
  const auto image = Image::decode(bytes);
  if (!image) return 0;
  const auto require = [](bool holds) {
    if (!holds) std::abort();
  };
  require(image->token.size() == 32);
  require(image->sessions.empty() ? !image->connections.empty() : !image->memory.empty());
  require(image->carried.empty() || image->carried.size() == image->connections.size());
  for (const auto& channel : image->channels) {
    require(!channel.numbers.empty());
    for (const int number : channel.numbers) require(number >= 0);
    for (const auto& message : channel.messages) require(message.size() <= Image::kMostMessage);
  }
  for (const auto& ends : image->ends) {
    require(!ends.reads.empty() && !ends.writes.empty());
    for (const int number : ends.reads) require(number >= 0);
    for (const auto& message : ends.messages) require(message.size() <= Image::kMostMessage);
  }
  for (const auto& peer : image->peers) {
    for (const auto& view : peer.views) require(view.length > 0 && view.protection <= 3);
    for (const auto& [channel, numbers] : peer.ends) require(!numbers.empty());
  }
  const auto again = Image::decode(image->encode());
  require(again && *again == *image);
  return 0;
}
