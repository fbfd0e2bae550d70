// What an operator offers to containers: the classes of vdevices in /etc/vrdma/classes.conf.
//
//   [small]                        a class; keys before the first section are of the class
//                                  `default`
//   tenant = red                   its containers join this tenant. `user`: the tenant uid<N>, N is
//                                  the user that owns the container's network namespace.
//                                  `namespace`: k8s/<namespace> of the pod. Absent: each vdevice is
//                                  a tenant of its own
//   fabric = red                   `user`: uid<N>; `namespace`: k8s/<namespace>; `tenant`: that of
//                                  its tenant alone. Absent: `containers` if N is 0, else uid<N>
//   reach = network                its fabric reaches the network from its first vdevice on.
//                                  `wire`: and pods and containers of one host reach each other by
//                                  it, too. `host`: no vdevice while it does either. Absent: as
//                                  `vrdmactl fabric set` says
//   peers = 10.0.0.0/8 fd00::/8    addresses and multicast groups outside of the fabric that its
//                                  members may send to and hear from, when it reaches the network;
//                                  `all`: without limit. Absent: as `vrdmactl fabric set` says
//   quota = qp=64,mr_bytes=1g
//   parent = soft
//   netdev = eth0                  absent: see docs/containers.md
//   memory = in-place              `reached`: no memory of its containers is put in place
//                                  (docs/programs.md)
//   allow = userfaultfd            permissions (provisioning/permission.h)
//   name = vrdma0                  of the device in the container
//   users = alice 1001             host users that may use the class; `*`: all. root always may
//   host_network = no              whether containers in the daemon's own namespace may use it
//   per_container = no             whether each container of a pod gets a vdevice of its own
//   most = 64                      containers of a user, other than root, that may have a vdevice
//                                  of it; 16 times as many of a range of 65,536 subordinate users
//   devices = 64                   how many a Kubernetes node offers
//   annotations = quota name       what a container may choose: quota, netdev, name
//   max_quota = qp=256             the highest limits that it may choose
//
// All keys may be absent, with the values above as defaults except tenant, fabric, reach, peers,
// quota, netdev, allow, users, annotations and max_quota, which are empty. The class `default`
// exists without the file. A mistake in a class concerns that class alone; lines that belong to
// none concern all. CLI11 reads the file, so that its syntax is that of vrdmad.conf.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "gid/prefix.h"
#include "provisioning/kind.h"

namespace vrdma::api {

inline constexpr char kClassesFile[] = "/etc/vrdma/classes.conf";
inline constexpr char kDefaultClass[] = "default";

// Whose container it is, as far as the kernel and a trusted runtime say.
struct ClassUser {
  uid_t owner = 0;            // of its network namespace
  std::string pod_namespace;  // of Kubernetes; empty: none, or told by a hook that is not root's
};

struct Class {
  std::string name;
  // kDefault: a tenant of its own; the fabric `containers`, but none for users other than root, who
  // could take the addresses of others.
  enum class Rule : uint8_t { kDefault, kNamed, kByUser, kByNamespace };
  Rule tenant_rule = Rule::kDefault, fabric_rule = Rule::kDefault;
  std::string tenant;                             // kNamed
  std::string fabric = "containers";              // kNamed; empty: the tenant's own
  std::string reach;                              // "host", "network", "wire"; empty: of the fabric
  std::optional<std::vector<gid::Prefix>> peers;  // of the fabric; empty: all. Absent: as they are
  std::vector<provisioning::Setting> quota, max_quota;
  std::string parent = "soft";
  std::string netdev;  // empty: found by the daemon
  std::vector<std::string> allow;
  std::string device = "vrdma0";  // the key `name`
  bool all_users = false;
  std::set<uid_t> users;
  bool host_network = false, per_container = false;
  bool memory_reached = false;  // the key `memory`
  uint64_t most = 64;
  uint32_t devices = 64;
  std::set<std::string> annotations;

  // Whether this user of the host may use it.
  [[nodiscard]] bool is_for(uid_t user) const {
    return user == 0 || all_users || users.contains(user);
  }
  // Only containers of pods may use it.
  [[nodiscard]] bool is_for_pods() const {
    return tenant_rule == Rule::kByNamespace || fabric_rule == Rule::kByNamespace;
  }
  [[nodiscard]] std::string tenant_of(const ClassUser& user) const;
  [[nodiscard]] std::string fabric_of(const ClassUser& user) const;
};

class Classes {
 public:
  // Errors are one sentence with the file, the class and the key; those of one class are in
  // wrong().
  [[nodiscard]] static base::Result<Classes> parse(const std::string& text,
                                                   const std::string& path);
  // Without the file there is only the class `default`.
  [[nodiscard]] static base::Result<Classes> read(const std::string& path);

  [[nodiscard]] const std::map<std::string, Class>& all() const { return all_; }
  // Classes with a mistake, which are not in all().
  [[nodiscard]] const std::map<std::string, base::Error>& wrong() const { return wrong_; }
  // ENOENT: the sentence names the file. The error of a wrong class.
  [[nodiscard]] base::Result<Class> find(const std::string& name) const;

 private:
  Classes() = default;
  std::string path_;
  std::map<std::string, Class> all_;
  std::map<std::string, base::Error> wrong_;
};

// The file, which is read again only after it has changed. Thread-safe.
class ClassFile {
 public:
  explicit ClassFile(std::string path) : path_(std::move(path)) {}
  [[nodiscard]] base::Result<Classes> read();
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  const std::string path_;
  std::mutex mutex_;  // guards both
  struct stat seen_ {};
  std::optional<Classes> classes_;  // what was read there, without a mistake
};

}  // namespace vrdma::api
