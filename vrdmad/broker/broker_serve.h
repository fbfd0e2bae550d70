// The broker process: serves the requests of control and of workers by a LocalBroker.
#pragma once

#include <functional>

#include "core/base/fd.h"
#include "vrdmad/broker/broker.h"
#include "vrdmad/broker/broker_place.h"
#include "vrdmad/broker/child_process.h"

namespace vrdma::vrdmad::broker {

// Serves at most `channels` channels, which BrokerProcess::attach() sends over `life`, until the
// daemon has ended. Calls `confine` first, with all capabilities of the process, when it has opened
// the program of workers and their network namespace.
[[noreturn]] void serve(base::Fd life, const BrokerPlace& place, unsigned channels,
                        const Confine& confine);

// Receives one request, calls `answer_to`, and sends the answer. Allocates nothing by itself. Does
// not wait for a request or for room if the channel is non-blocking. False: the channel has ended,
// or its client says something that it should not. Descriptors beside a request are not received,
// because closing them may take long.
using AnswerTo = std::function<Answer(const Request&, Beside*)>;
[[nodiscard]] bool serve_request(const base::Fd& channel, const AnswerTo& answer_to);

}  // namespace vrdma::vrdmad::broker
