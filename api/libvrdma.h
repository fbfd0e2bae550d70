// What the files of libvrdma share: how a call of the C API begins, fails and ends.
#pragma once

#include <signal.h>
#include <vrdma/v1/admin.pb.h>
#include <vrdma/vrdma.h>

#include <cerrno>
#include <exception>
#include <map>
#include <new>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace vrdma::api {

// Sets errno and what vrdma_last_error() says in this thread.
void set_last_error(int code, const char* sentence) noexcept;

// For as long as gRPC is in use by a call or a watch, so that a fork(2) meanwhile is seen.
class InUse {
 public:
  InUse();
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;
  ~InUse();
  // This process was forked meanwhile: gRPC's state can be neither used nor destroyed in it.
  [[nodiscard]] static bool was_forked();
};

// All signals are blocked in this thread, and in those that are started meanwhile.
class NoSignals {
 public:
  NoSignals();
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;
  ~NoSignals();

 private:
  sigset_t before_;
};

// Runs `work`, which returns a Result<T>: its value, or `failed` with the error set. Nothing is
// thrown out of it.
template <class T, class Work>
T guarded(T failed, Work work) noexcept {
  try {
    base::Result<T> result = work();
    if (result) return *result;
    set_last_error(result.error().code(), result.error().message().c_str());
  } catch (const std::bad_alloc&) {
    set_last_error(ENOMEM, "out of memory");
  } catch (const std::exception& error) {
    set_last_error(EIO, error.what());
  } catch (...) {
    set_last_error(EIO, "an unknown failure");
  }
  return failed;
}

// The error of whoever calls although was_forked().
[[nodiscard]] base::Result<void> check_not_forked();

// A vrdma_vdevice with all that it points to.
class OwnedVdevice : public vrdma_vdevice {
 public:
  explicit OwnedVdevice(v1::Vdev from);
  OwnedVdevice(const OwnedVdevice&) = delete;
  OwnedVdevice& operator=(const OwnedVdevice&) = delete;

 private:
  const v1::Vdev message_;
  std::vector<const char*> gids_, allowed_;
  std::vector<vrdma_quota> quota_;
  std::map<std::string, std::string> by_key_;
  std::vector<vrdma_label> labels_;
};

}  // namespace vrdma::api
