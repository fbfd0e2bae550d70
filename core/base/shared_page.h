// A struct in a sealed memory file, which several processes map.
//
// The struct has a fixed layout and no pointers, and each of its words has one writer or is atomic.
// A process of lower privilege may write anything into a page that it can write: its readers copy a
// word once and check what they copied.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "core/base/error.h"
#include "core/base/fd.h"
#include "core/base/mapping.h"

namespace vrdma::base {

template <class T>
class SharedPage {
  static_assert(std::is_standard_layout_v<T> && std::is_trivially_destructible_v<T>);

 public:
  SharedPage() = default;

  // A new one, default-constructed. `name` appears in /proc/PID/maps.
  [[nodiscard]] static Result<SharedPage> make(const char* name) {
    auto file = make_memfd(name, sizeof(T));
    if (!file) return pass(std::move(file).error());
    auto mapping = Mapping::shared(*file, sizeof(T), 0, PROT_READ | PROT_WRITE);
    if (!mapping) return pass(std::move(mapping).error());
    new (mapping->bytes()) T;
    return SharedPage(std::move(*file), std::move(*mapping));
  }
  // That of another process. EPROTO: the file has another size, or its owner could shorten it.
  [[nodiscard]] static Result<SharedPage> map(Fd file) {
    struct stat status {};
    const int seals = ::fcntl(file.get(), F_GET_SEALS);
    if (::fstat(file.get(), &status) != 0 || static_cast<size_t>(status.st_size) != sizeof(T) ||
        seals < 0 || (seals & F_SEAL_SHRINK) == 0)
      return fail(EPROTO, "a file is not the shared page that was expected");
    auto mapping = Mapping::shared(file, sizeof(T), 0, PROT_READ | PROT_WRITE);
    if (!mapping) return pass(std::move(mapping).error());
    return SharedPage(std::move(file), std::move(*mapping));
  }

  // Never null but in a default-constructed one. Stays mapped as long as a reference exists.
  [[nodiscard]] const std::shared_ptr<T>& get() const { return page_; }
  T* operator->() const { return page_.get(); }
  T& operator*() const { return *page_; }
  // For the other process.
  [[nodiscard]] const Fd& file() const { return *file_; }

 private:
  SharedPage(Fd file, Mapping mapping) : file_(std::make_shared<Fd>(std::move(file))) {
    const auto kept = std::make_shared<Mapping>(std::move(mapping));
    page_ = {kept, kept->template at<T>(0)};
  }
  std::shared_ptr<Fd> file_;
  std::shared_ptr<T> page_;
};

}  // namespace vrdma::base
