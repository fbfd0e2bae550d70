// Asks the daemon for the names and GUIDs of the vdevices of a network namespace.
//
// It asks at the rdma_cm socket of the namespace, which needs no worker. A request at the session
// socket of a vdevice would start the worker of its tenant, and wait for it.
#pragma once

#include <cstdint>
#include <string>

#include "client/dial/dial.h"
#include "core/base/fd.h"
#include "core/ipc/cm_messages.h"

namespace vrdma::client {

// For the time of one listing. Not thread-safe.
class DeviceNames {
 public:
  // `directory`: socket_directory(). Connects at the first call of ask().
  explicit DeviceNames(const std::string& directory) : path_(directory + "/" + ipc::kCmSocket) {}

  // Of the vdevice whose session socket is DIRECTORY/<number>.sock. 0; ENODEV: there is no such
  // vdevice; another errno: the daemon is older than this request, or refuses it. The session
  // socket can still be asked then (ipc::Call::kProbe).
  int ask(uint32_t number, ipc::CmDeviceName* device);

 private:
  const std::string path_;
  Newcomer newcomer_;
  base::Fd socket_;
  uint32_t sequence_ = 0;
};

}  // namespace vrdma::client
