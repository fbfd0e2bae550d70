#include "vrdmad/control/worker_process_end.h"

#include <poll.h>
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
  std::unique_ptr<WorkerProcessEnd> end(
      new WorkerProcessEnd(loop, std::move(*process), std::move(ended)));
  auto link = Link::start(
      loop, std::move(end->process_->link),
      [tell = std::move(tell)](std::span<const uint8_t> bytes, const Beside& beside) {
        const auto message = decode_to_control(bytes);
        if (!message || !beside.empty()) return false;
        tell(*message);
        return true;
      },
      [raw = end.get()](const std::string& why) { raw->on_hang_up(why); }, std::move(closer));
  if (!link) return base::pass(std::move(link).error());
  end->link_ = std::move(*link);
  auto died = loop.watch(end->pidfd_.get(), EPOLLIN | EPOLLET,
                         [raw = end.get()](uint32_t) { raw->on_death(); });
  if (!died) return base::pass(std::move(died).error());
  end->died_ = std::move(*died);
  return end;
}

WorkerProcessEnd::WorkerProcessEnd(base::EventLoop& loop, WorkerProcess process,
                                   Workers::Ended ended)
    : loop_(loop),
      process_(std::move(process)),
      pidfd_(std::move(process_->pidfd)),
      report_(std::move(process_->report)),
      ended_(std::move(ended)) {}

void WorkerProcessEnd::on_hang_up(const std::string& why) {
  process_.reset();
  pollfd its{pidfd_.get(), POLLIN, 0};
  if (::poll(&its, 1, 0) > 0) return std::exchange(ended_, nullptr)(why);
  why_ = why;
  patience_ = loop_.after(kPatience, [this] { std::exchange(ended_, nullptr)(*why_); });
}

void WorkerProcessEnd::on_death() {
  if (!why_) return link_->hang_up();  // after what it has sent
  patience_.reset();
  if (ended_ != nullptr) std::exchange(ended_, nullptr)(*why_);
}

base::Fd WorkerProcessEnd::report() const {
  if (!report_.valid()) return {};
  auto report = report_.duplicate();
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
