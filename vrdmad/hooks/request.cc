#include "vrdmad/hooks/request.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/base/printable.h"
#include "vrdmad/broker/broker_wire.h"
#include "vrdmad/broker/intake_wire.h"

namespace vrdma::vrdmad {

using base::fail;
using base::Result;

namespace {

// The text must end, and nothing may follow its end. It becomes part of log lines and labels.
template <size_t kSize>
Result<std::string> text_of(const char (&from)[kSize], const char* what) {
  const std::string_view all(from, kSize);
  const std::string_view text = all.substr(0, all.find('\0'));
  if (text.size() == kSize || all.find_first_not_of('\0', text.size()) != std::string_view::npos)
    return fail(EINVAL, std::string("the hook's ") + what +
                            " has no end: install hook and vrdmad "
                            "of one version");
  if (!std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; }))
    return fail(EINVAL, std::string(what) + " '" + base::printable(text) +
                            "' has characters that it may not have: use letters and digits");
  return std::string(text);
}

}  // namespace

static_assert(sizeof(hook::Request) <= intake::kMostBytes, "the intake passes all of it on");

Result<HookRequest> read_request(const void* bytes, size_t size, size_t length) {
  hook::Request wire;
  if (length != sizeof wire || size < sizeof wire)
    return fail(EPROTO, "the hook is of another version: install hook and vrdmad of one version");
  std::memcpy(&wire, bytes, sizeof wire);
  if (wire.version != hook::kVersion)
    return fail(EPROTO, "the hook speaks version " + std::to_string(wire.version) +
                            ", and vrdmad version " + std::to_string(hook::kVersion) +
                            ": install hook and vrdmad of one version");
  using Op = hook::Request::Op;
  HookRequest request;
  request.op = wire.op;
  request.network_admin = wire.network_admin != 0;
  if (wire.op == Op::kDone) return request;
  if (wire.op != Op::kSetUp && wire.op != Op::kEnded && wire.op != Op::kFailed)
    return fail(EPROTO,
                "the hook asks for what vrdmad does not know: install hook and vrdmad of "
                "one version");
  for (auto& [text, into] :
       {std::pair{text_of(wire.container, "container id"), &request.container},
        {text_of(wire.pod, "pod id"), &request.pod},
        {text_of(wire.pod_namespace, "pod namespace"), &request.pod_namespace},
        {text_of(wire.pod_name, "pod name"), &request.pod_name},
        {text_of(wire.pod_uid, "pod uid"), &request.pod_uid},
        {text_of(wire.container_name, "container name"), &request.container_name},
        {text_of(wire.device_class, "class"), &request.device_class},
        {text_of(wire.claim, "claim"), &request.claim},
        {text_of(wire.share, "share"), &request.share},
        {text_of(wire.netdev, "annotation netdev"), &request.netdev},
        {text_of(wire.name, "annotation name"), &request.name},
        {text_of(wire.quota, "annotation quota"), &request.quota}}) {
    if (!text) return base::pass(text.error());
    *into = *text;
  }
  request.reason =
      base::printable(std::string_view(wire.reason, strnlen(wire.reason, sizeof wire.reason)));
  if (request.container.empty())
    return fail(EINVAL, "the hook names no container: its runtime must pass an id");
  return request;
}

hook::Answer refusal(const base::Error& why) {
  hook::Answer answer;
  answer.error = why.code();
  const std::string reason = base::printable(why.message());
  (void)broker::put(std::string_view(reason).substr(0, sizeof answer.reason - 1), answer.reason);
  return answer;
}

}  // namespace vrdma::vrdmad
