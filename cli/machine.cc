// `vrdmactl vdev export`: a vdevice for a virtual machine.
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/commands.h"
#include "cli/exec.h"
#include "cli/for_shell.h"
#include "core/base/fd.h"

namespace vrdma::cli {

namespace {

// Of the vdevice's interface, in its network namespace, which this process is in.
base::Result<std::string> mac_of(const std::string& netdev) {
  const base::Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strncpy(request.ifr_name, netdev.c_str(), IFNAMSIZ - 1);
  if (!socket.valid() || ::ioctl(socket.get(), SIOCGIFHWADDR, &request) != 0)
    return base::fail_errno("ask for the address of " + netdev);
  const auto* const mac = reinterpret_cast<const unsigned char*>(request.ifr_hwaddr.sa_data);
  char text[18];
  std::snprintf(text, sizeof text, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3],
                mac[4], mac[5]);
  return text;
}

// QEMU's options and their values. SIZE and NETDEV are the operator's.
using QemuOptions = std::vector<std::pair<std::string, std::string>>;
QemuOptions qemu_options(const std::string& mac, const std::string& socket, bool may_migrate) {
  const nlohmann::json device = {{"driver", "vfio-user-pci"},
                                 {"addr", "10.1"},
                                 {"socket", {{"type", "unix"}, {"path", socket}}}};
  QemuOptions options{
      {"-object", "memory-backend-memfd,id=ram,size=SIZE,share=on"},
      {"-machine", "memory-backend=ram"},
      {"-device", "vmxnet3,netdev=NETDEV,addr=10.0,multifunction=on,mac=" + mac},
      {"-device", device.dump()},
  };
  // QEMU would migrate the machine and lose the device without a word.
  if (!may_migrate) {
    options.emplace_back("-object", "memory-backend-memfd,id=stay,size=1M,share=on");
    options.emplace_back("-device", "ivshmem-plain,memdev=stay,master=off");
  }
  return options;
}

void print(const QemuOptions& options, Format format) {
  if (format == Format::kJson) {
    auto words = nlohmann::json::array();
    for (const auto& [option, value] : options) words.insert(words.end(), {option, value});
    std::cout << nlohmann::json({{"qemu", words}}).dump(2) << '\n';
    return;
  }
  for (const auto& [option, value] : options) {
    const bool is_plain = value.find_first_of("'\"{") == std::string::npos;
    std::cout << option << ' ' << (is_plain ? value : for_shell(value)) << '\n';
  }
}

}  // namespace

Outcome vdev_export(const Options& options, Output&) {
  const auto found = named_vdev(options);
  if (!found) return base::pass(found.error());
  const auto libraries = library_dir();
  if (!libraries) return base::pass(libraries.error());
  std::error_code ignored;
  const std::string socket = std::filesystem::absolute(options.socket, ignored).lexically_normal();
  if (auto entered = enter_netns(*found); !entered) return entered;
  const auto mac = mac_of(found->netdev());
  if (!mac) return base::pass(mac.error());
  const auto& allow = found->allowed();
  if (std::find(allow.begin(), allow.end(), "qp1") == allow.end())
    std::cerr << "vrdmactl: without --allow qp1 the machine's driver has no queue pair 1: its "
                 "programs connect without rdma_cm\n";
  print(qemu_options(*mac, socket, options.may_migrate), options.format);
  if (!std::cout.flush()) return base::fail(EIO, "cannot write the output");
  if (options.print_only) return {};
  std::vector<std::string> command{*libraries + "/vrdma-pvrdma", "--device", found->name(),
                                   "--socket", socket};
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) command.insert(command.end(), {option, value});
  };
  add("--owner", options.vmm_user);
  add("--user", options.user);
  return base::pass(exec_in(*found, options.run_dir, command));
}

}  // namespace vrdma::cli
