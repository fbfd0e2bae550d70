#include "vrdmad/control/worker_process_end.h"

#include <spdlog/spdlog.h>
#include <sys/epoll.h>

#include <utility>

#include "vrdmad/worker/messages_codec.h"

namespace vrdma::vrdmad {

base::Result<std::unique_ptr<WorkerProcessEnd>> WorkerProcessEnd::start(base::EventLoop& loop,
                                                                        Broker& broker,
                                                                        Workers::Tell tell,
                                                                        Workers::Ended ended,
                                                                        Intake::AccountRef closer) {
  auto process = broker.start_worker();
  if (!process) return base::pass(std::move(process).error());
  std::unique_ptr<WorkerProcessEnd> end(new WorkerProcessEnd(std::move(*process)));
  auto link = Link::start(
      loop, std::move(end->process_->link),
      [tell = std::move(tell)](std::span<const uint8_t> bytes, const Beside& beside) {
        const auto message = decode_to_control(bytes);
        if (!message || !beside.empty()) return false;
        tell(*message);
        return true;
      },
      std::move(ended), std::move(closer));
  if (!link) return base::pass(std::move(link).error());
  end->link_ = std::move(*link);
  auto died = loop.watch(end->process_->pidfd.get(), EPOLLIN | EPOLLET,
                         [link = end->link_.get()](uint32_t) { link->hang_up(); });
  if (!died) return base::pass(std::move(died).error());
  end->died_ = std::move(*died);
  return end;
}

base::Fd WorkerProcessEnd::report() const {
  if (!process_ || !process_->report.valid()) return {};
  auto report = process_->report.duplicate();
  return report ? std::move(*report) : base::Fd();
}

void WorkerProcessEnd::send(Parcel parcel) {
  if (!process_) return;
  auto bytes = encode(parcel.message);
  if (!bytes)
    return spdlog::error("a message to a worker is beyond its bounds (kind {})",
                         parcel.message.index());
  link_->send(std::move(*bytes), std::move(parcel.beside));
}

}  // namespace vrdma::vrdmad
