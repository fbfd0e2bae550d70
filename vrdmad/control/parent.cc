#include "vrdmad/control/parent.h"

namespace vrdma::vrdmad {

namespace {

class SoftParent final : public Parent {
 public:
  [[nodiscard]] std::string name() const override { return "soft"; }
  [[nodiscard]] std::string kind() const override { return "built in"; }
  [[nodiscard]] std::string detail() const override { return "shared memory of this host"; }
  [[nodiscard]] std::string state() const override { return "ACTIVE"; }
  [[nodiscard]] base::Result<ParentShare> open(const netns::Link&,
                                               const provisioning::Limits&) override {
    return ParentShare();
  }
};

}  // namespace

std::vector<std::unique_ptr<Parent>> find_parents() {
  std::vector<std::unique_ptr<Parent>> parents;
  parents.push_back(std::make_unique<SoftParent>());
  return parents;
}

}  // namespace vrdma::vrdmad
