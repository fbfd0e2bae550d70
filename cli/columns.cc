#include "cli/columns.h"

#include <strings.h>

#include <algorithm>
#include <cerrno>

#include "core/base/option_check.h"

namespace vrdma::cli {

namespace {

constexpr unsigned kRight = Column::kRight, kIfAny = Column::kIfAny, kExtra = Column::kExtra,
                   kCut = Column::kCut, kState = Column::kState;

}  // namespace

const Columns kVdevColumns{{"NAME"},
                           {"STATE", kState},
                           {"NETNS", kCut},
                           {"NETDEV"},
                           {"PARENT"},
                           {"TENANT"},
                           {"FABRIC"},
                           {"MTU", kRight},
                           {"GIDS", kRight},
                           {"SESSIONS", kRight},
                           {"WHO", kIfAny | kCut},
                           {"ID", kRight | kExtra},
                           {"REFERENCE", kExtra},
                           {"LABELS", kExtra | kCut},
                           {"POD", kExtra | kCut},
                           {"CONTAINER", kExtra | kCut},
                           {"OWNER", kRight | kExtra},
                           {"REACH", kExtra},
                           {"TRAFFIC", kExtra},
                           {"ALLOWED", kExtra | kCut},
                           {"ADDRESSES", kExtra | kCut},
                           {"GUID", kExtra},
                           {"IFINDEX", kRight | kExtra},
                           {"COOKIE", kRight | kExtra},
                           {"GID-LAYOUT", kExtra},
                           {"SOCKET", kExtra | kCut},
                           {"LOST", kExtra | kCut}};

const Columns kQuotaColumns{{"VDEVICE"},
                            {"KIND"},
                            {"USED", kRight},
                            {"LIMIT", kRight},
                            {"TENANT", kExtra},
                            {"NETNS", kExtra | kCut},
                            {"ID", kRight | kExtra},
                            {"WHO", kExtra | kCut}};

const Columns kCgroupColumns{
    {"CGROUP", kCut},       {"VDEVICE"}, {"KIND"}, {"USED", kRight}, {"NETNS", kExtra | kCut},
    {"ID", kRight | kExtra}};

const Columns kGidColumns{{"VDEVICE"},
                          {"INDEX", kRight},
                          {"GID"},
                          {"TYPE"},
                          {"TENANT", kExtra},
                          {"FABRIC", kExtra},
                          {"NETNS", kExtra | kCut},
                          {"NETDEV", kExtra},
                          {"ID", kRight | kExtra},
                          {"WHO", kExtra | kCut}};

const Columns kClassColumns{
    {"NAME"},         {"PARENT"},      {"DEVICES", kRight},        {"GIVEN", kRight},
    {"FREE", kRight}, {"QUOTA", kCut}, {"STATE", kExtra | kState}, {"NUMA", kRight | kExtra}};

const Columns kClaimColumns{{"CLAIM"}, {"NAMESPACE/NAME"}, {"SHARE"},
                            {"CLASS"}, {"QUOTA", kCut},    {"VDEVICES", kRight}};

const Columns kParentColumns{{"NAME"},
                             {"KIND"},
                             {"VDEVICES", kRight},
                             {"DETAIL", kCut},
                             {"STATE", kExtra | kState},
                             {"NUMA", kRight | kExtra}};

const Columns kBudgetColumns{{"NAME"},          {"OVERCOMMIT", kRight}, {"VDEVICES", kRight},
                             {"KIND"},          {"DEFAULT", kRight},    {"CEILING", kRight},
                             {"GIVEN", kRight}, {"USED", kRight}};

const Columns kFabricColumns{
    {"NAME"}, {"REACH"}, {"VDEVICES", kRight}, {"GIDS", kRight}, {"PEERS", kCut}};

const Columns kConnectionColumns{{"VDEVICE"},
                                 {"TENANT"},
                                 {"TYPE"},
                                 {"STATE"},
                                 {"LOCAL"},
                                 {"REMOTE"},
                                 {"QPN", kRight},
                                 {"TRANSPORT"},
                                 {"AGE", kRight},
                                 {"PEER-QPN", kRight | kExtra},
                                 {"SIDE", kExtra},
                                 {"SERVICE", kExtra},
                                 {"WAITING", kRight | kExtra},
                                 {"BACKLOG", kRight | kExtra},
                                 {"FABRIC", kExtra},
                                 {"NETNS", kExtra | kCut},
                                 {"ID", kRight | kExtra},
                                 {"WHO", kExtra | kCut}};

// RTT is in microseconds.
const Columns kQueuePairColumns{{"VDEVICE"},
                                {"QPN", kRight},
                                {"PID", kRight},
                                {"TYPE"},
                                {"STATE"},
                                {"TRANSPORT"},
                                {"PEER"},
                                {"PEER-QPN", kRight},
                                {"RTT", kRight},
                                {"WINDOW", kRight},
                                {"LOSSES", kRight},
                                {"RNR", kRight},
                                {"RESENT", kRight},
                                {"LOCAL", kExtra},
                                {"UNANSWERED", kRight | kExtra},
                                {"RATE", kRight | kExtra},
                                {"REQUESTS", kRight | kExtra},
                                {"BYTES", kRight | kExtra},
                                {"NETNS", kExtra | kCut},
                                {"ID", kRight | kExtra},
                                {"WHO", kExtra | kCut}};

const Columns kCounterColumns{{"SCOPE"},
                              {"COUNTER"},
                              {"VALUE", kRight},
                              {"TENANT", kExtra},
                              {"NETNS", kExtra | kCut},
                              {"ID", kRight | kExtra}};

// D: by the programs, direct; W: by vrdmad's workers.
const Columns kTopColumns{{"VDEVICE"},
                          {"TENANT"},
                          {"PID", kRight | kIfAny},
                          {"SESSIONS", kRight},
                          {"QPS", kRight},
                          {"DIRECT/S", kRight},
                          {"D-BYTES/S", kRight},
                          {"WORKER/S", kRight},
                          {"W-BYTES/S", kRight},
                          {"REFUSED/S", kRight},
                          {"REASON", kIfAny},
                          {"MINUTE", kIfAny},
                          {"WHO", kIfAny | kCut},
                          {"NETNS", kExtra | kCut},
                          {"ID", kRight | kExtra}};

std::string names_of(const Columns& columns) {
  std::string names;
  for (const Column& one : columns) names.append(names.empty() ? "" : ", ").append(one.name);
  return names;
}

base::Result<std::vector<size_t>> find_columns(const Columns& columns,
                                               const std::vector<std::string>& names) {
  std::vector<size_t> found;
  for (const auto& name : names) {
    const auto it = std::find_if(columns.begin(), columns.end(), [&](const Column& one) {
      return ::strcasecmp(one.name, name.c_str()) == 0;
    });
    if (it == columns.end())
      return base::fail(EINVAL, "there is no column " + base::in_quotes(name) + "; there are " +
                                    names_of(columns));
    const auto index = static_cast<size_t>(it - columns.begin());
    if (std::find(found.begin(), found.end(), index) != found.end())
      return base::fail(EINVAL, std::string("column ") + it->name + " is named twice");
    found.push_back(index);
  }
  return found;
}

}  // namespace vrdma::cli
