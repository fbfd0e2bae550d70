// Shared by the files of libvrdma: the start, failure and end of a call of the C API.
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

// Sets errno, and the sentence of vrdma_last_error() in this thread.
void set_last_error(int code, const char* sentence) noexcept;

// Exists while a call or a watch uses gRPC, so that a fork(2) during that time is detected.
class InUse {
 public:
  InUse();
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;
  ~InUse();
  // Whether this process was forked during such use: it can neither use nor destroy gRPC's state.
  [[nodiscard]] static bool was_forked();
};

// Blocks all signals in this thread, and in threads that it starts meanwhile.
class NoSignals {
 public:
  NoSignals();
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;
  ~NoSignals();

 private:
  sigset_t before_;
};

// Runs `work`, which returns a Result<T>. Returns its value, or `failed` with the error set. Throws
// nothing.
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
    set_last_error(EIO, "unknown failure");
  }
  return failed;
}

// EDEADLK if was_forked().
[[nodiscard]] base::Result<void> check_not_forked();

// A vrdma_vdevice that owns everything it points to.
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
