#include "cli/doctor/port.h"

#include <algorithm>

namespace vrdma::cli::doctor {

bool has_port_everywhere(std::string_view sockets) {
  // A line: "sl: LOCAL:PORT REMOTE:PORT ...", in hexadecimal.
  while (!sockets.empty()) {
    const std::string_view line = sockets.substr(0, sockets.find('\n'));
    sockets.remove_prefix(std::min(line.size() + 1, sockets.size()));
    const size_t begin = line.find(": ");
    if (begin == std::string_view::npos) continue;
    const std::string_view local = line.substr(begin + 2, line.find(' ', begin + 2) - begin - 2);
    const size_t colon = local.find(':');
    if (colon != std::string_view::npos && local.substr(colon) == ":12B7" &&
        local.substr(0, colon).find_first_not_of('0') == std::string_view::npos)
      return true;
  }
  return false;
}

Finding judge_port(const std::vector<const v1::Vdev*>& reaching, bool taken, bool rxe) {
  std::string names;
  for (const v1::Vdev* one : reaching) names += (names.empty() ? "" : ", ") + one->name();
  if (!taken) return {"port", State::kOk, "no other program keeps UDP port 4791 from " + names, ""};
  const std::string text = " has UDP port 4791 at every address of the network namespace, so " +
                           names + (reaching.size() == 1 ? " exchanges" : " exchange") +
                           " no packets with other hosts";
  if (rxe)
    return {"port", State::kProblem, "the kernel's rxe (module rdma_rxe) or another program" + text,
            "'rmmod rdma_rxe', and 'blacklist rdma_rxe' in modprobe.d(5) if it is loaded again; "
            "'ss -ulnp sport = 4791' in the namespace shows a program"};
  return {"port", State::kProblem, "another program" + text,
          "end it; 'ss -ulnp sport = 4791' in the namespace shows it"};
}

}  // namespace vrdma::cli::doctor
