#include "vrdmad/broker/conversation.h"

#include <spdlog/spdlog.h>

#include <bit>

namespace vrdma::vrdmad {

int refuse_program(const base::Error& why, const std::string& whose, uint64_t so_far) {
  if (std::has_single_bit(so_far))
    spdlog::warn("{}: refused a program: {} ({} so far)", whose, why.message(), so_far);
  return why.code() == EACCES ? EACCES : EPERM;
}

void warn_of_version(uint32_t version, const Protocol& protocol, ipc::Sized served,
                     const std::string& whose) {
  spdlog::warn("{}: a program speaks version {} of the {} protocol; this vrdmad serves {} to {}",
               whose, version, protocol.name, served.oldest, served.newest);
}

}  // namespace vrdma::vrdmad
