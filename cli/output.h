// The output of vrdmactl on success: a table for people or JSON for programs (-o json).
//
// The JSON has the names of vrdma/v1/admin.proto. Lists are arrays, also with one element; numbers
// are numbers; no field is ever absent. Tables may change; JSON fields are only added.
#pragma once

#include <vrdma/v1/admin.pb.h>

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "cli/list.h"
#include "core/base/error.h"

namespace vrdma::cli {

enum class Format { kTable, kJson };

class Output {
 public:
  // Of WHO: by the vdevice's id; see cli/who.h.
  using Whose = std::map<uint64_t, std::string>;

  // `style.columns` must be names of the columns that the command prints.
  Output(std::ostream& out, Format format, Style style = {})
      : out_(out), format_(format), style_(std::move(style)) {}

  void created(const v1::Vdev& vdev);  // prints no table, like ip(8)
  // `all`: the vdevices of the daemon, to which references must be unique.
  void list(const std::vector<v1::Vdev>& vdevs, const std::vector<v1::Vdev>& all);
  // References only, one per line.
  void names(const std::vector<v1::Vdev>& vdevs, const std::vector<v1::Vdev>& all);
  // The table sums up their queue pairs, or says why these are not known. Exports that are not
  // known are null in the JSON.
  void show(const std::vector<v1::Vdev>& vdevs,
            const base::Result<std::vector<v1::QueuePair>>& queue_pairs,
            const base::Result<std::vector<v1::Export>>& exports = {});
  void quota(const std::vector<v1::Vdev>& vdevs);
  void gids(const std::vector<v1::Vdev>& vdevs);
  void parents(const std::vector<v1::Parent>& parents);
  void classes(const std::vector<v1::Class>& classes);
  void claims(const std::vector<v1::Claim>& claims);  // the table has a line for each share
  // The table contains only kinds with a setting.
  void budgets(const std::vector<v1::Budget>& budgets);
  void changed(const v1::Budget& budget);  // prints no table
  void fabrics(const std::vector<v1::Fabric>& fabrics);
  void changed(const v1::Fabric& fabric);  // prints no table
  void cgroups(const std::vector<v1::CgroupUse>& uses);
  // The table has the transport of those whose queue pair is among `queue_pairs`. An error is
  // printed below it.
  void connections(const std::vector<v1::Connection>& connections,
                   const base::Result<std::vector<v1::QueuePair>>& queue_pairs,
                   const Whose& whose = {});
  void queue_pairs(const std::vector<v1::QueuePair>& queue_pairs, const Whose& whose = {});
  void counters(const std::vector<v1::Counter>& counters);
  void parked(const v1::ParkedProcess& process);  // prints no table
  // One line per event, flushed.
  void event(const v1::WatchEvent& event);
  // `own` is vrdmactl's version.
  void version(const std::string& own, const v1::VersionResponse& daemon);

 private:
  std::ostream& out_;
  const Format format_;
  const Style style_;
};

}  // namespace vrdma::cli
