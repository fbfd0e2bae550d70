#include "tests/sim/life.h"

#include <utility>
#include <vector>

namespace vrdma::sim {

using vrdmad::Daemon;
using vrdmad::WatchEvent;

namespace {

template <class T>
T need(base::Result<T> result, const std::string& what) {
  if (!result) throw Failure(what + ": " + result.error().message());
  return std::move(*result);
}

}  // namespace

Machine::Machine(uint64_t seed, std::string where)
    : host(seed * 2 + 1),
      directory(std::move(where)),
      store(need(vrdmad::Store::open(directory + "/store"), "open the store")) {}

void Watcher::on(const WatchEvent& event) {
  const uint64_t id = event.vdev.id;
  const std::string which =
      "vdevice " + std::to_string(id) + " (" + event.vdev.netns + "/" + event.vdev.name + ")";
  const bool knows = known_.contains(id);
  if (event.type == WatchEvent::Type::kAdded && knows)
    throw Failure("a watcher hears twice that " + which + " was added");
  if (event.type != WatchEvent::Type::kAdded && !knows)
    throw Failure("a watcher hears '" + event.reason + "' of " + which +
                  ", which was not added or has gone");
  if (event.type == WatchEvent::Type::kRemoved)
    known_.erase(id);
  else
    known_.insert_or_assign(id, event.vdev);
}

Life::Life(Machine& machine)
    : machine_(machine),
      loop_(need(base::EventLoop::create(machine.host.time), "make a loop")),
      run_dir_(need(vrdmad::RunDir::open(machine.directory + "/run"), "open the run directory")),
      broker_(std::make_shared<SimBroker>(machine.host)),
      workers_(machine.host, *broker_, *loop_, machine.workers) {
  vrdmad::SessionSettings settings;
  settings.broker = broker_;
  auto links = std::make_unique<SimLinks>(machine.host);
  links_ = links.get();
  auto writer = std::make_unique<SimWriter>(machine.host, *machine.store, machine.disk);
  writer_ = writer.get();
  auto processes = std::make_unique<SimProcesses>(machine.host);
  processes_ = processes.get();
  auto aside = std::make_unique<SimAside>(machine.host);
  aside_ = aside.get();
  daemon_ = need(
      Daemon::start(*loop_, run_dir_, *machine.store, settings, {},
                    {std::move(links), std::move(writer), workers_.starter(), std::move(processes),
                     std::move(aside), vrdmad::find_parents(), [this] { pass(); }},
                    std::make_shared<api::ClassFile>(machine.directory + "/classes.conf")),
      "start vrdmad");
  watching_ = daemon_->watch([this](const WatchEvent& event) { watcher_.on(event); });
}

void Life::crash() {
  crashed_ = true;
  writer_->crash();
}

Life::~Life() {
  // A call that was abandoned may have left work on the loop: nothing of it is run any more, so the
  // subscription, whose end is a call, is kept until the process ends.
  static auto& kept = *new std::vector<std::shared_ptr<void>*>;
  if (crashed_) kept.push_back(new std::shared_ptr<void>(std::move(watching_)));
  watching_.reset();
}

bool Life::at_rest() const {
  return links_->settled() && writer_->at_rest() && workers_.at_rest() && processes_->settled() &&
         aside_->at_rest();
}

void Life::pass() {
  if (!machine_.host.step(loop_.get(), base::TimePoint::max()))
    throw Failure("a call waits for something that does not come");
}

}  // namespace vrdma::sim
