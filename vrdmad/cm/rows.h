// Connections and their counters as the admin API shows them.
#pragma once

#include <string>
#include <vector>

#include "qp1mux/mux.h"
#include "vrdmad/admin/backend.h"

namespace vrdma::vrdmad {

// Listeners and connections of one vdevice, or of all if the id is 0: by vdevice, listeners first,
// then the oldest. Without the text of the namespace, which is not known here.
[[nodiscard]] std::vector<ConnectionRow> connection_rows(const qp1mux::Mux& mux, uint64_t vdev_id);

// cm_sent_req, cm_rejects_received_invalid_service_id, ...: of messages and reasons those that are
// not 0.
[[nodiscard]] std::vector<CounterRow> cm_counter_rows(const std::string& scope,
                                                      const qp1mux::Counters& counters);

}  // namespace vrdma::vrdmad
