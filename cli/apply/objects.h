// What a file of `vrdmactl apply` describes, and what vrdmad has, as plain values.
//
// Limits are in the units of provisioning/kind.h; the highest value of a kind stands for "max".
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace vrdma::cli::apply {

// Of a vdevice that apply has created: the set of the file that created it.
inline constexpr char kSetLabel[] = "vrdma.io/applied-by";
inline constexpr char kDefaultSet[] = "default";
inline constexpr char kDefaultParent[] = "soft";
inline constexpr char kDefaultReach[] = "host";
inline constexpr char kDefaultLayout[] = "dense";

using Limits = std::map<std::string, uint64_t>;  // by kind
using Line = unsigned;                           // of a file; 0: of none

struct Vdevice {
  std::string name, netns, netdev;  // netns: without /run/netns/
  std::string parent = kDefaultParent;
  std::string tenant, fabric;  // empty: its own
  // In a file: the limits that are not the default. In vrdmad: all.
  Limits quota;
  std::set<std::string> allow, addresses;  // addresses: prefixes as printed
  bool no_direct = false;
  std::string gid_layout = kDefaultLayout;
  std::map<std::string, std::string> labels;  // without kSetLabel
  bool operator==(const Vdevice&) const = default;
};

struct Budget {
  Limits defaults, ceilings;
  uint32_t overcommit = 100;  // percent
  bool operator==(const Budget&) const = default;
};

enum class Scope { kTenant, kParent };
struct BudgetKey {
  Scope scope = Scope::kTenant;
  std::string name;
  auto operator<=>(const BudgetKey&) const = default;
};

struct Fabric {
  std::string reach = kDefaultReach;
  std::set<std::string> peers{};  // prefixes; empty: all
  bool operator==(const Fabric&) const = default;
};

template <class T>
struct At {
  T value;
  Line line = 0;
};

struct File {
  std::string set = kDefaultSet;
  std::vector<At<Vdevice>> vdevices;
  std::map<BudgetKey, At<Budget>> budgets;
  std::map<std::string, At<Fabric>> fabrics;
};

// A vdevice of vrdmad.
struct Existing {
  uint64_t id = 0;
  Vdevice vdevice;
  std::string set;        // kSetLabel; empty: apply has not created it
  std::string held;       // "containers" or "process 42", if it ends with these; empty: with none
  uint32_t sessions = 0;  // processes that have it open
  bool is_lost = false;
};

struct State {
  std::vector<Existing> vdevices;
  std::map<BudgetKey, Budget> budgets;    // those that differ from Budget()
  std::map<std::string, Fabric> fabrics;  // likewise
  std::set<std::string> parents;
};

// "red/a0", as in references to vdevices.
[[nodiscard]] inline std::string name_of(const Vdevice& vdevice) {
  return vdevice.netns + "/" + vdevice.name;
}
[[nodiscard]] inline std::string name_of(const BudgetKey& key) {
  return (key.scope == Scope::kTenant ? "tenant " : "parent ") + key.name;
}

}  // namespace vrdma::cli::apply
