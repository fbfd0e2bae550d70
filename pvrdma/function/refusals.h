// Sentences about commands that are refused, and what is refused to every kind of object alike.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>

#include "core/base/error.h"
#include "pvrdma/function/objects.h"

namespace vrdma::pvrdma {

[[nodiscard]] inline tl::unexpected<base::Error> unknown(const char* what, uint32_t handle) {
  return base::fail(EINVAL, std::string("there is no ") + what + " " + std::to_string(handle));
}
[[nodiscard]] inline tl::unexpected<base::Error> too_many(const char* what) {
  return base::fail(ENOMEM, std::string("the guest has as many ") + what + " as there can be");
}

[[nodiscard]] inline tl::unexpected<base::Error> lost(const char* what, uint32_t handle) {
  return base::fail(EIO, std::string(what) + " " + std::to_string(handle) +
                             " ended with a process of the device; its program must open the "
                             "device again");
}

// `by`: a queue pair that names it, or nullptr.
[[nodiscard]] inline base::Result<void> unless_used(const char* what, uint32_t handle,
                                                    const Qp* by) {
  if (by == nullptr) return {};
  return base::fail(EBUSY, std::string(what) + " " + std::to_string(handle) +
                               " is in use: destroy queue pair " + std::to_string(by->handle) +
                               " first");
}

// The object of verbs goes, and with it the driver's; or verbs refuse, and nothing has changed.
template <class Object>
[[nodiscard]] base::Result<void> destroy(Table<Object>* table, uint32_t handle, const char* what) {
  Object* const one = table->find(handle);
  if (one == nullptr) return unknown(what, handle);
  if (const int error = one->verbs != nullptr ? Destroy()(one->verbs.get()) : 0; error != 0)
    return base::fail_errno(std::string("destroy ") + what + " " + std::to_string(handle), error);
  (void)one->verbs.release();
  table->remove(handle);
  return {};
}

}  // namespace vrdma::pvrdma
