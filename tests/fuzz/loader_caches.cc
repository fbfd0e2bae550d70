// The loader's cache of an image, as vrdma-oci-hook reads it: any bytes are refused or understood,
// and what is written of them is read again as the same.
#include <cstdlib>
#include <string_view>

#include "cli/hook/loader_cache.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vrdma::cli::hook;  // NOLINT(google-build-using-namespace): a fuzz target
  auto cache = read_loader_cache({reinterpret_cast<const char*>(data), size});
  if (!cache) return 0;
  const size_t before = cache->entries.size();
  cache->redirect("libibverbs.so.1", "/run/vrdma/lib/libibverbs.so.1");
  require(cache->entries.size() <= before + 1);
  require(cache->paths_of({"libibverbs.so.1"}).size() == 1);
  const std::string written = write_loader_cache(*cache);
  const auto again = read_loader_cache(written);
  // A cache that is as long as permitted grows beyond that.
  if (!again) {
    require(written.size() > kMostCache);
    return 0;
  }
  require(again->hwcaps == cache->hwcaps && again->entries.size() == cache->entries.size());
  require(write_loader_cache(*again) == written);
  return 0;
}
