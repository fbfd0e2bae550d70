#include "vrdmad/broker/conversation.h"

#include <bit>

#include "core/base/log.h"

namespace vrdma::vrdmad {

int refuse_program(const base::Error& why, const std::string& whose, uint64_t so_far) {
  if (std::has_single_bit(so_far))
    base::log_warning(whose + ": refused a program: " + why.message() + " (" +
                      std::to_string(so_far) + " so far)");
  return why.code() == EACCES ? EACCES : EPERM;
}

void warn_of_version(uint32_t version, const Protocol& protocol, ipc::Sized served,
                     const std::string& whose) {
  base::log_warning(whose + ": a program speaks version " + std::to_string(version) + " of the " +
                    protocol.name + " protocol; this vrdmad serves " +
                    std::to_string(served.oldest) + " to " + std::to_string(served.newest));
}

}  // namespace vrdma::vrdmad
