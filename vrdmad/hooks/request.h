// A hook's request (api/hook_wire.h), checked and with text in strings. Anybody on the host can
// send one.
#pragma once

#include <cstddef>
#include <string>

#include "api/hook_wire.h"
#include "core/base/error.h"

namespace vrdma::vrdmad {

struct HookRequest {
  hook::Request::Op op{};
  bool network_admin = false;  // its programs may exchange its netdevs and addresses
  std::string container, pod, device_class;
  std::string claim, share;                                      // empty: by the class
  std::string pod_namespace, pod_name, pod_uid, container_name;  // empty: it is in no pod
  std::string netdev, name, quota;  // annotations; empty: there is none
  std::string reason;               // why the hook failed: printable, without lines
};

// `length`: of the message, of which `bytes` has at most `size`. EPROTO: of another build, or not a
// request; EINVAL: a text has no end, or what it may not contain.
[[nodiscard]] base::Result<HookRequest> read_request(const void* bytes, size_t size, size_t length);

// A text without its end or with lines is cut or made printable.
[[nodiscard]] hook::Answer refusal(const base::Error& why);

}  // namespace vrdma::vrdmad
