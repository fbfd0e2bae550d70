// The ResourceSlices of the node: what must be written so that the API server has the pool. Pure
// functions.
//
// A pool is in one or several slices. The scheduler uses those of the highest generation, if all
// are there, so that any change writes all slices anew with a higher generation.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/kubernetes/dra/pool.h"
#include "core/base/error.h"

namespace vrdma::cli::kubernetes {

// The API allows 128 devices in a slice, and 64 if they have taints.
inline constexpr size_t kMostInSlice = 64;
inline constexpr char kSlicesPath[] = "/apis/resource.k8s.io/v1/resourceslices";

// Whose slices.
struct SliceOwner {
  std::string driver;    // "vrdma.io"
  std::string node;      // its name, which is also that of the pool
  std::string node_uid;  // so that the slices end with the node
};

struct Slice {
  std::string name, version;  // version: resourceVersion
  std::string pool;
  uint64_t generation = 0, count = 0;
  std::vector<PoolDevice> devices;
  bool understood = true;  // false: something in it is not as slice_body() writes it
};
struct SliceList {
  std::string version;  // of the list: watches begin there
  std::vector<Slice> slices;
};
// EPROTO: the text is no list of slices; a slice that is not understood is no error.
[[nodiscard]] base::Result<SliceList> parse_slices(const std::string& text);
// The answer to a write. EPROTO: it is no slice.
[[nodiscard]] base::Result<Slice> parse_slice(const std::string& text);

struct SliceWrite {
  enum class What { kCreate, kReplace, kRemove };
  What what = What::kCreate;
  std::string name;
  std::string body;  // JSON; empty of kRemove
};
// `after`: the highest generation that the caller has written before. Empty: all is as it should
// be.
[[nodiscard]] std::vector<SliceWrite> plan_slices(const SliceOwner& owner,
                                                  const std::vector<PoolDevice>& wanted,
                                                  const std::vector<Slice>& existing,
                                                  uint64_t after);

}  // namespace vrdma::cli::kubernetes
