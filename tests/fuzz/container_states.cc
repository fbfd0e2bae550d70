// What a container runtime says about a container, of which its image wrote a part: the state and
// config.json. Whatever vrdma-oci-hook takes of it is one printable line, and vrdma-runtime's
// change of a config.json can be read again.
#include <algorithm>
#include <cstdlib>

#include "cli/hook/state.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

bool is_printable(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vrdma::cli::hook;  // NOLINT(google-build-using-namespace): a fuzz target
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto container = parse_state(text)) {
    for (const auto* line :
         {&container->id, &container->pod, &container->netdev, &container->name, &container->quota})
      require(is_printable(*line));
    require(container->pid >= 0 && container->bundle.starts_with('/'));
  }
  if (const auto config = parse_config(text, "/bundle")) {
    require(config->root.starts_with('/'));
    for (const auto& directory : config->library_path) require(directory.starts_with('/'));
  }
  const HookCommand command{"/hook", {"small", "", ""}};
  if (const auto changed = add_hooks(text, command); changed && *changed) {
    const auto again = add_hooks(**changed, command);
    require(again && !*again);
  }
  return 0;
}
