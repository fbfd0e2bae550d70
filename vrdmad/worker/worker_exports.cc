// A worker's answer to what the programs of a vdevice say of the machines that they show it to.
#include <algorithm>
#include <utility>

#include "vrdmad/worker/worker.h"

namespace vrdma::vrdmad {

void Worker::on(const AskExports& message, Beside) {
  Exports answer;
  answer.ticket = message.ticket;
  const Vdevice* const vdevice = find(message.vdevice);
  const auto its = vdevice != nullptr ? sessions_.find(vdevice) : sessions_.end();
  if (its == sessions_.end()) return tell_(std::move(answer));
  for (const auto& session : its->second) {
    if (session->objects() == nullptr) continue;
    const rdma::Context& context = session->objects()->context();
    if (context.id <= message.after || context.arena == nullptr) continue;
    auto is = context.arena->at<ipc::ExportState>(ipc::kExportOffset)->read();
    if (!is) continue;
    const int32_t pid = context.process != nullptr ? context.process->peer().pid : 0;
    answer.rows.push_back({context.id, pid, std::move(*is)});
  }
  std::ranges::sort(answer.rows, {}, &Exports::Row::session);
  answer.more = answer.rows.size() > Exports::kMost;
  if (answer.more) answer.rows.resize(Exports::kMost);
  tell_(std::move(answer));
}

}  // namespace vrdma::vrdmad
