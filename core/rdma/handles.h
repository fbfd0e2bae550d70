// A table of objects by handle, from 1 on; a handle that was given back is given again.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace vrdma::rdma {

template <class T>
class Handles {
 public:
  // With that very handle if it is not 0; it must be free.
  T* add(std::unique_ptr<T> object, uint32_t wanted = 0) {
    while (objects_.size() < wanted) {
      free_.push_back(objects_.size());
      objects_.emplace_back();
    }
    size_t index = free_.empty() ? objects_.size() : free_.back();
    if (wanted != 0) {
      index = wanted - 1;
      free_.erase(std::find(free_.rbegin(), free_.rend(), index).base() - 1);
    } else if (free_.empty()) {
      objects_.emplace_back();
    } else {
      free_.pop_back();
    }
    object->handle = static_cast<uint32_t>(index + 1);
    objects_[index] = std::move(object);
    ++count_;
    return objects_[index].get();
  }
  // nullptr if `handle` is none of this context's.
  [[nodiscard]] T* find(uint32_t handle) const {
    return handle == 0 || handle > objects_.size() ? nullptr : objects_[handle - 1].get();
  }
  void remove(uint32_t handle) {
    auto gone = std::move(objects_[handle - 1]);
    free_.push_back(handle - 1);
    --count_;
  }
  [[nodiscard]] size_t count() const { return count_; }
  // All handles are at most this.
  [[nodiscard]] size_t capacity() const { return objects_.size(); }
  template <class F>
  void each(F f) const {
    for (const auto& object : objects_)
      if (object) f(*object);
  }

 private:
  std::vector<std::unique_ptr<T>> objects_;
  std::vector<size_t> free_;
  size_t count_ = 0;
};

}  // namespace vrdma::rdma
