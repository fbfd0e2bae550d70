#include "tests/sim/disk.h"

#include <utility>
#include <variant>

namespace vrdma::sim {

using base::Result;
using vrdmad::Store;

std::vector<Result<void>> SimWriter::State::commit(
    const std::vector<Store::Change>& changes) const {
  if (!mood.full) return store.write(changes);
  std::vector<Result<void>> results;
  for (const auto& change : changes)
    if (std::holds_alternative<Store::Forgotten>(change))
      results.push_back(store.write({change}).front());
    else
      results.push_back(base::fail(ENOSPC, "the disk is full"));
  return results;
}

// The daemon stops: all that waits is written first.
SimWriter::~SimWriter() {
  State& state = *state_;
  state.ends = true;
  while (!state.crashed && state.queue.due()) {
    auto batch = state.queue.take();
    const auto results = state.commit(batch.changes);
    state.queue.finish(std::move(batch), results, state.host.time.now(), true);
  }
}

std::future<Result<void>> SimWriter::write(Store::Change change) {
  auto written = state_->queue.write(std::move(change));
  go_on(state_);
  return written;
}

void SimWriter::write_later(Store::Change change) {
  state_->queue.write_later(std::move(change), state_->host.time.now());
  go_on(state_);
}

// One commit at a time. What comes meanwhile shares the next.
void SimWriter::go_on(const std::shared_ptr<State>& state) {
  const auto due = state->queue.due();
  if (state->busy || state->ends || !due) return;
  Host& host = state->host;
  if (*due > host.time.now()) return host.after(*due - host.time.now(), [state] { go_on(state); });
  state->busy = true;
  auto batch = std::make_shared<vrdmad::ChangeQueue::Batch>(state->queue.take());
  host.after(host.chance.up_to(state->mood.longest), [state, batch] {
    state->busy = false;
    if (state->ends) return;
    const auto results = state->commit(batch->changes);
    state->queue.finish(std::move(*batch), results, state->host.time.now(), false);
    go_on(state);
  });
}

}  // namespace vrdma::sim
