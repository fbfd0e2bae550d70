// Rows of connections and their counters for the admin API.
#pragma once

#include <string>
#include <vector>

#include "qp1mux/mux.h"
#include "vrdmad/admin/backend.h"

namespace vrdma::vrdmad {

// Listeners and connections of one vdevice, or of all if the id is 0: by vdevice, listeners first,
// then the oldest first. The caller must fill in the text of the namespace.
[[nodiscard]] std::vector<ConnectionRow> connection_rows(const qp1mux::Mux& mux, uint64_t vdev_id);

// cm_sent_req, cm_rejects_received_invalid_service_id, ...: those that are not 0. If `has_ids`, the
// vdevice has ids of rdma_cm now, or there was any message, the other messages and reasons that
// vrdmad sends are there as well.
[[nodiscard]] std::vector<CounterRow> cm_counter_rows(const std::string& scope,
                                                      const qp1mux::Counters& counters,
                                                      bool has_ids);

}  // namespace vrdma::vrdmad
