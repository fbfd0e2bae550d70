// Worker processes, and what they may ask.
#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>

#include "core/ipc/socket.h"
#include "vrdmad/broker/earlier_workers.h"
#include "vrdmad/broker/local_broker.h"
#include "vrdmad/broker/local_broker_process.h"
#include "vrdmad/broker/worker_child.h"

namespace vrdma::vrdmad {

using base::fail;
using base::pass;
using base::Result;
using Op = broker::Request::Op;

namespace {
// For earlier workers; they end within some milliseconds, unless a thread of one hangs.
constexpr std::chrono::milliseconds kPatience{200};
}  // namespace

std::shared_ptr<WorkerGround> LocalBroker::ground() {
  const std::lock_guard lock(mutex_);
  if (ground_ == nullptr) ground_ = std::make_shared<WorkerGround>(place_);
  return ground_;
}

Result<void> LocalBroker::start_worker(Answer* answer, Beside* beside) {
  auto root = known_.empty_root();
  if (!root) return pass(std::move(root).error(), "start a worker");
  std::call_once(alone_, [&] { end_earlier_workers(*root, kPatience); });
  auto ends = ipc::make_socket_pair();
  if (!ends) return pass(std::move(ends).error(), "start a worker");
  auto report = ipc::make_socket_pair();
  if (!report) return pass(std::move(report).error(), "start a worker");
  const auto child = std::make_shared<WorkerChild>();
  auto entry = add(child);
  if (!entry) return pass(std::move(entry).error());
  auto started = child->start(
      ground(), std::move(*root), std::move(ends->second), std::move(report->second),
      [weak = weak_from_this(), worker = *entry](const auto& request, Beside* with) -> Answer {
        const auto broker = std::static_pointer_cast<LocalBroker>(weak.lock());
        if (broker == nullptr) return refusal({EPIPE, "the broker ends"});
        return broker->serve_worker(worker, request, with);
      });
  auto pidfd = started ? child->pidfd() : pass(std::move(started).error());
  if (!pidfd) {
    forget(*entry);
    return pass(std::move(pidfd).error());
  }
  answer->entry = *entry;
  (*beside)[0] = std::move(ends->first);
  (*beside)[1] = std::move(*pidfd);
  (*beside)[2] = std::move(report->first);
  return {};
}

void LocalBroker::end() {
  std::map<uint32_t, Entry> entries;
  std::unique_lock lock(mutex_);
  entries.swap(entries_);
  const auto ground = ground_;
  lock.unlock();
  std::erase_if(entries, [](const auto& entry) {
    return std::holds_alternative<std::shared_ptr<WorkerChild>>(entry.second);
  });
  try {
    // To close a listener may take as long as the sender of a descriptor in its queue likes.
    std::thread([rest = std::move(entries)] {}).detach();
  } catch (const std::system_error&) {
  }
  known_.end();
  if (ground == nullptr) return;
  // A worker of which a thread hangs is not waited for: the next broker removes its group.
  for (int tries = 0; !ground->places.empty() && tries < 100; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

Result<Recipient> LocalBroker::recipient(const Request& request) {
  if ((request.files & ~uint32_t{Request::kMayPacketSocket}) != 0)
    return fail(EINVAL, "there are no such rights of a worker");
  if (request.first == 0) return Recipient{};
  const auto child = at<WorkerChild>(request.first);
  if (!child || !(*child)->lives()) return fail(ENXIO, "there is no such worker");
  return Recipient{request.first, request.files};
}

Broker::Answer LocalBroker::serve_worker(uint32_t worker, const Request& request, Beside* beside) {
  Answer answer;
  if (auto done = dispatch_worker(worker, request, &answer, beside); !done)
    return refusal(done.error());
  return answer;
}

Result<void> LocalBroker::dispatch_worker(uint32_t worker, const Request& request, Answer* answer,
                                          Beside* beside) {
  const bool opens = request.op == Op::kCheck &&
                     (request.files == Request::kNone || request.files == Request::kMemory ||
                      request.files == Request::kWritableMemory);
  if (!opens && request.op != Op::kPacketSocket)
    return fail(EPERM, "a worker may not ask for that");
  // The same answer for the entry of another as for none.
  const auto process = at<Process>(request.entry);
  if (!process || (*process)->recipient.worker != worker || !at<WorkerChild>(worker))
    return fail(EPERM, "the entry is not for this worker");
  if (request.op == Op::kPacketSocket &&
      ((*process)->recipient.rights & Request::kMayPacketSocket) == 0)
    return fail(EPERM, "the worker may have no packet socket for this entry");
  return inspect(opens ? &LocalBroker::check : &LocalBroker::packet_socket, request, answer,
                 beside);
}

}  // namespace vrdma::vrdmad
