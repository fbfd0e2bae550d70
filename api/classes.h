// What an operator offers to containers: the classes of vdevices in /etc/vrdma/classes.conf.
//
//   [small]                        a class; keys before the first section are of the class
//                                  `default`
//   tenant = red                   its containers join this tenant. `user`: the tenant uid<N>, N is
//                                  the user that owns the container's network namespace.
//                                  Absent: each vdevice is a tenant of its own
//   fabric = red                   `user`: uid<N>; `tenant`: that of its tenant alone. Absent:
//                                  `containers` if N is 0, else uid<N>
//   quota = qp=64,mr_bytes=1g
//   parent = soft
//   netdev = eth0                  absent: see docs/containers.md
//   allow = userfaultfd            permissions (provisioning/permission.h)
//   name = vrdma0                  of the device in the container
//   users = alice 1001             host users that may use the class; `*`: all. root always may
//   host_network = no              whether containers in the daemon's own namespace may use it
//   per_container = no             whether each container of a pod gets a vdevice of its own
//   most = 64                      containers of a user, other than root, that may have a vdevice
//                                  of it
//   annotations = quota name       what a container may choose: quota, netdev, name
//   max_quota = qp=256             the highest limits that it may choose
//
// All keys may be absent, with the values above as defaults except tenant, fabric, quota, netdev,
// allow, users, annotations and max_quota, which are empty. The class `default` exists without the
// file. CLI11 reads the file, so that its syntax is that of vrdmad.conf.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "provisioning/kind.h"

namespace vrdma::api {

inline constexpr char kClassesFile[] = "/etc/vrdma/classes.conf";
inline constexpr char kDefaultClass[] = "default";

struct Class {
  std::string name;
  std::string tenant;  // empty: each vdevice is a tenant of its own
  bool tenant_by_user = false;
  std::string fabric = "containers";  // empty: the tenant's own
  // A user other than root could take the addresses of others, so none shares the default fabric.
  enum class FabricRule : uint8_t { kDefault, kNamed, kByUser };
  FabricRule fabric_rule = FabricRule::kDefault;
  std::vector<provisioning::Setting> quota, max_quota;
  std::string parent = "soft";
  std::string netdev;  // empty: found by the daemon
  std::vector<std::string> allow;
  std::string device = "vrdma0";  // the key `name`
  bool all_users = false;
  std::set<uid_t> users;
  bool host_network = false, per_container = false;
  uint64_t most = 64;
  std::set<std::string> annotations;

  // Whether this user of the host may use it.
  [[nodiscard]] bool is_for(uid_t user) const {
    return user == 0 || all_users || users.contains(user);
  }
  // Of a container whose network namespace this user owns.
  [[nodiscard]] std::string tenant_of(uid_t owner) const;
  [[nodiscard]] std::string fabric_of(uid_t owner) const;
};

class Classes {
 public:
  // Errors are one sentence with the file, the class and the key.
  [[nodiscard]] static base::Result<Classes> parse(const std::string& text,
                                                   const std::string& path);
  // Without the file there is only the class `default`.
  [[nodiscard]] static base::Result<Classes> read(const std::string& path);

  [[nodiscard]] const std::map<std::string, Class>& all() const { return all_; }
  // ENOENT: the sentence names the file.
  [[nodiscard]] base::Result<Class> find(const std::string& name) const;

 private:
  Classes() = default;
  std::string path_;
  std::map<std::string, Class> all_;
};

}  // namespace vrdma::api
