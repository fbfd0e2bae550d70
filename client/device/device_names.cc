#include "client/device/device_names.h"

#include <cerrno>
#include <vector>

#include "core/ipc/socket.h"

namespace vrdma::client {

int DeviceNames::ask(uint32_t number, ipc::CmDeviceName* device) {
  ipc::CmRequest request;
  request.call = ipc::CmCall::kDevice;
  request.value = number;
  request.sequence = ++sequence_;
  if (sequence_ == 1) socket_ = newcomer_.begin(path_, false).value_or(base::Fd());
  while (socket_.valid()) {
    ipc::CmReply reply;
    std::vector<base::Fd> none;
    if (ipc::send_message(socket_.get(), &request, sizeof request) &&
        ipc::receive_reply(socket_.get(), &reply, &none) && reply.sequence == request.sequence) {
      newcomer_.answered();
      *device = reply.device;
      return reply.error;
    }
    socket_ = newcomer_.again(path_).value_or(base::Fd());
  }
  return EIO;
}

}  // namespace vrdma::client
