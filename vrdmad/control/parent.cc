#include "vrdmad/control/parent.h"

namespace vrdma::vrdmad {

namespace {

class SoftParent final : public Parent {
 public:
  [[nodiscard]] std::string name() const override { return "soft"; }
  [[nodiscard]] std::string kind() const override { return "built in"; }
  [[nodiscard]] std::string detail() const override { return "shared memory of this host"; }
  [[nodiscard]] verbs::Capabilities capabilities() const override {
    return verbs::kSoftCapabilities;
  }
  [[nodiscard]] base::Result<void> admit(const std::string&) const override { return {}; }
};

}  // namespace

std::vector<std::unique_ptr<Parent>> find_parents() {
  std::vector<std::unique_ptr<Parent>> parents;
  parents.push_back(std::make_unique<SoftParent>());
  return parents;
}

}  // namespace vrdma::vrdmad
