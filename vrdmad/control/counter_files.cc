#include "vrdmad/control/counter_files.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace vrdma::vrdmad {

CounterFiles::CounterFiles(base::EventLoop& loop, ReadLeases& leases,
                           std::map<std::string, base::Fd> files, Source source,
                           base::Duration period)
    : loop_(loop),
      leases_(leases),
      files_(std::move(files)),
      source_(std::move(source)),
      period_(period) {
  wait_for_readers();
}

CounterFiles::~CounterFiles() { give_up(); }

void CounterFiles::wait_for_readers() {
  for (const auto& [path, fd] : files_) {
    const auto taken = leases_.take(fd.get(), [this] { on_opened(); });
    if (taken) continue;
    give_up();
    if (taken.error().code() != EAGAIN)
      return spdlog::warn("{} stays as it is: {}", path, taken.error().message());
    return look_again();
  }
}

void CounterFiles::on_opened() {
  if (timer_.active() || asking_) return;  // another file was opened just before
  refresh([this] {
    give_up();
    look_again();
  });
}

void CounterFiles::look_again() {
  timer_ = loop_.after(period_, [this] {
    timer_.reset();
    refresh([this] { wait_for_readers(); });
  });
}

void CounterFiles::refresh(std::function<void()> then) {
  asking_ = true;
  source_([this, alive = std::weak_ptr(alive_), then = std::move(then)](const Values& values) {
    if (alive.expired()) return;
    asking_ = false;
    write(values);
    then();
  });
}

void CounterFiles::write(const Values& values) {
  for (const auto& [path, value] : values) {
    const auto file = files_.find(path);
    const auto before = written_.find(path);
    if (file == files_.end() || (before != written_.end() && before->second == value)) continue;
    const std::string text = std::to_string(value) + "\n";
    if (::pwrite(file->second.get(), text.data(), text.size(), 0) ==
            static_cast<ssize_t>(text.size()) &&
        ::ftruncate(file->second.get(), static_cast<off_t>(text.size())) == 0)
      written_[path] = value;
  }
}

void CounterFiles::give_up() {
  for (const auto& [path, fd] : files_) leases_.give_up(fd.get());
}

}  // namespace vrdma::vrdmad
