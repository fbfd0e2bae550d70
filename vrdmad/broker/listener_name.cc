#include "vrdmad/broker/listener_name.h"

#include <cerrno>
#include <charconv>
#include <string_view>

#include "core/ipc/cm_messages.h"

namespace vrdma::vrdmad {

namespace {

// Digits only, and nothing after them.
bool read(std::string_view text, uint64_t* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

base::Result<ListenerName> listener_name(const std::string& run_dir, const std::string& path) {
  const auto wrong = base::fail(EPERM, path + " is not a session socket of " + run_dir);
  constexpr std::string_view kBelow = "/netns/", kEnd = ".sock";
  std::string_view rest = path;
  if (!rest.starts_with(run_dir)) return wrong;
  rest.remove_prefix(run_dir.size());
  if (!rest.starts_with(kBelow)) return wrong;
  rest.remove_prefix(kBelow.size());
  const size_t slash = rest.find('/');
  ListenerName name;
  if (slash == std::string_view::npos || !read(rest.substr(0, slash), &name.netns)) return wrong;
  rest.remove_prefix(slash + 1);
  if (rest == ipc::kCmSocket) {
    name.number = ListenerName::kCm;
    return name;
  }
  if (!rest.ends_with(kEnd)) return wrong;
  rest.remove_suffix(kEnd.size());
  if (!read(rest, &name.number) || name.number == ListenerName::kCm) return wrong;
  return name;
}

}  // namespace vrdma::vrdmad
