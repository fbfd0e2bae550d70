#include "cli/sandbox/obstacle.h"

#include <linux/capability.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

namespace vrdma::cli::sandbox {

namespace {

std::optional<long> number_in(const char* path) {
  std::ifstream file(path);
  long value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

std::string profile_of_this_process() {
  std::ifstream file("/proc/self/attr/apparmor/current");
  if (!file) file.open("/proc/self/attr/current");
  std::string profile;
  std::getline(file, profile);
  profile = profile.substr(0, profile.find_first_of(" \0\n", 0, 3));
  return profile == "unconfined" ? std::string() : profile;
}

const char* name_of(Step step) {
  switch (step) {
    case Step::kUserNamespace:
      return "make a user namespace";
    case Step::kIdMap:
      return "map this user into a user namespace";
    case Step::kMountNamespace:
      return "make a mount namespace";
    case Step::kNetNamespace:
      return "make a network namespace";
    case Step::kPidNamespace:
      return "make a pid namespace";
    case Step::kMount:
      return "mount in a user namespace";
    case Step::kNetdev:
      return "make a network interface";
  }
  return "";
}

struct Limit {
  const char* sysctl;
  std::optional<long> value;
};
Limit limit_of(Step step, const HostFacts& facts) {
  switch (step) {
    case Step::kMountNamespace:
      return {"user.max_mnt_namespaces", facts.max_mnt};
    case Step::kNetNamespace:
      return {"user.max_net_namespaces", facts.max_net};
    case Step::kPidNamespace:
      return {"user.max_pid_namespaces", facts.max_pid};
    default:
      return {"user.max_user_namespaces", facts.max_user};
  }
}

std::string reason_of_enospc(Step step, const HostFacts& facts) {
  const Limit limit = limit_of(step, facts);
  if (limit.value == 0)
    return std::string("the sysctl ") + limit.sysctl + " is 0: as root, sysctl -w " + limit.sysctl +
           "=10000";
  return std::string("the limit ") + limit.sysctl +
         " is reached, or user namespaces are nested more than 32 deep: end other sandboxes or "
         "containers, or raise the limit";
}

const char* const kEngine =
    "run the container with --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
    "(Kubernetes: seccompProfile and appArmorProfile of type Unconfined)";

const char* const kAnotherUser =
    "start the container as another user (--user 1000; Kubernetes: runAsUser), or with "
    "--cap-add=SETFCAP";

std::string reason_of_eperm(Step step, const HostFacts& facts) {
  if (step == Step::kIdMap && facts.root && !facts.may_map_root)
    return std::string(
               "it is root without the capability SETFCAP, as by --cap-drop=ALL, and the kernel "
               "maps no such root: ") +
           kAnotherUser;
  if (facts.unprivileged_userns_clone == 0 && !facts.root)
    return "the sysctl kernel.unprivileged_userns_clone is 0: as root, sysctl -w "
           "kernel.unprivileged_userns_clone=1";
  if (facts.apparmor_restricts.value_or(0) != 0 && !facts.seccomp_filter)
    return "AppArmor restricts user namespaces here (Ubuntu, GitHub's runners): as root, sysctl -w "
           "kernel.apparmor_restrict_unprivileged_userns=0, or run vrdma-sandbox by sudo";
  if (facts.seccomp_filter && (step == Step::kUserNamespace || step == Step::kMountNamespace ||
                               step == Step::kNetNamespace || step == Step::kPidNamespace))
    return std::string("a seccomp filter of this process, as of Docker, forbids it: ") + kEngine +
           (step == Step::kUserNamespace && facts.root && !facts.may_map_root
                ? std::string("; and because it is root without the capability SETFCAP, ") +
                      kAnotherUser
                : std::string());
  if (!facts.apparmor_profile.empty())
    return "the AppArmor profile '" + facts.apparmor_profile + "' forbids it: " + kEngine;
  if (facts.seccomp_filter)
    return std::string("the container's seccomp filter or security module forbids it: ") + kEngine;
  if (step == Step::kUserNamespace)
    return "this process is in a chroot(2), where the kernel makes none, or its user is not mapped "
           "in "
           "its own user namespace, or a security module forbids it: start it elsewhere, or as "
           "root";
  return "a security module or the container engine forbids it: start it outside of the container, "
         "or as root";
}

}  // namespace

HostFacts look_at_host() {
  HostFacts facts;
  facts.unprivileged_userns_clone = number_in("/proc/sys/kernel/unprivileged_userns_clone");
  facts.apparmor_restricts = number_in("/proc/sys/kernel/apparmor_restrict_unprivileged_userns");
  facts.max_user = number_in("/proc/sys/user/max_user_namespaces");
  facts.max_mnt = number_in("/proc/sys/user/max_mnt_namespaces");
  facts.max_net = number_in("/proc/sys/user/max_net_namespaces");
  facts.max_pid = number_in("/proc/sys/user/max_pid_namespaces");
  facts.apparmor_profile = profile_of_this_process();
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("Seccomp:", 0) == 0) facts.seccomp_filter = line.find('2') != std::string::npos;
    if (line.rfind("CapEff:", 0) == 0)
      facts.may_map_root = (std::strtoull(line.c_str() + 7, nullptr, 16) >> CAP_SETFCAP & 1) != 0;
  }
  facts.root = ::geteuid() == 0;
  return facts;
}

base::Error explain(Step step, int code, const HostFacts& facts) {
  const std::string what = std::string("cannot ") + name_of(step) + ": ";
  const bool of_namespaces = step != Step::kMount && step != Step::kNetdev;
  if (code == EINVAL && of_namespaces)
    return {code, what +
                      "this kernel has no such namespaces (CONFIG_NAMESPACES, CONFIG_USER_NS): "
                      "use another kernel, or start it as root"};
  if ((code == ENOSPC || code == EUSERS) && of_namespaces)
    return {code, what + reason_of_enospc(step, facts)};
  if (code == EOPNOTSUPP && step == Step::kNetdev)
    return {code, what + "this kernel makes no veth interfaces: as root, modprobe veth"};
  if (code == EPERM || code == EACCES) return {code, what + reason_of_eperm(step, facts)};
  return {code, what + ::strerror(code)};
}

}  // namespace vrdma::cli::sandbox
