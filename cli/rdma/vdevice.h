// What a vdevice's files below /sys say (vrdmad/control/sysfs_tree.h, cli/mounts/plan.h).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace vrdma::cli::rdma {

class Vdevice {
 public:
  using Numbers = std::vector<std::pair<std::string, std::string>>;  // name, digits

  // Those that are shown in `sys`, by name. Devices of the kernel are left out.
  [[nodiscard]] static std::vector<Vdevice> all(const std::string& sys);

  [[nodiscard]] unsigned index() const { return index_; }  // in all()
  [[nodiscard]] const std::string& name() const { return name_; }
  // A line of the file, without its end; empty: it cannot be read.
  [[nodiscard]] std::string attribute(const std::string& file) const;
  // "ACTIVE" of a file that says "4: ACTIVE".
  [[nodiscard]] std::string state(const std::string& file) const;
  // The netdev and its index; empty: there is none.
  [[nodiscard]] std::pair<std::string, std::string> netdev() const;
  // Of `names`, or of all files in the directory by name.
  [[nodiscard]] Numbers numbers(const std::string& directory,
                                std::vector<std::string> names = {}) const;

 private:
  unsigned index_ = 0;
  std::string name_, dir_;
};

}  // namespace vrdma::cli::rdma
