#include "core/rdma/parking.h"

#include <sys/mman.h>

#include <algorithm>

#include "core/base/asymmetric_fence.h"

namespace vrdma::rdma {

using verbs::QpType;

namespace {

bool has_importers(const Context& context) {
  return std::any_of(context.device->contexts.begin(), context.device->contexts.end(),
                     [&](const Context* other) { return other->exporter == context.id; });
}

}  // namespace

std::string parking_obstacle(const Context& context) {
  if (context.exporter != 0 || has_importers(context))
    return "it shares objects with another process (ibv_import_device)";
  if (context.xrcds.count() > 0) return "it has an XRC domain open";
  std::string found;
  context.qps.each([&](const Qp& qp) {
    const auto number = " (queue pair " + std::to_string(qp.qpn) + ")";
    if (qp.type == QpType::kRawPacket)
      found = "it has a queue pair of raw packets" + number;
    else if (qp.type == QpType::kGsi)
      found = "it has queue pair 1 open";
  });
  return found;
}

void park(Context& context) {
  context.parked = true;
  context.device->fabric->tell_links(context);
  // After this, a program that executes by itself is either marked busy or sees that it must not.
  base::AsymmetricFence::heavy();
}

bool is_at_rest(const Context& context) {
  bool rests = true;
  const auto executes = [](const Qp& qp) {
    return (qp.block->busy.load(std::memory_order_acquire) & 1) != 0;
  };
  context.qps.each([&](const Qp& qp) {
    rests = rests && qp.arrivals.expired() && !executes(qp) &&
            (qp.link.in == nullptr || !executes(*qp.link.in));
  });
  return rests;
}

std::vector<Reach*> reaches_of(const Context& context) {
  std::vector<Reach*> all;
  const auto add = [&all](const Context* its) {
    Reach* const reach =
        its != nullptr && its->process != nullptr ? its->process->reach() : nullptr;
    if (reach != nullptr && std::find(all.begin(), all.end(), reach) == all.end())
      all.push_back(reach);
  };
  add(&context);
  context.qps.each([&](const Qp& qp) {
    for (const Qp* peer : {qp.link.out, qp.link.in})
      if (peer != nullptr) add(peer->context);
  });
  return all;
}

void resume(Context& context) {
  context.parked = false;
  context.qps.each([](Qp& qp) {
    // What changed meanwhile may not have reached the program.
    qp.block->state.store(qp.attributes.state, std::memory_order_release);
    if (qp.link.kind() == Link::Kind::kNone)
      qp.block->link.store(static_cast<uint32_t>(ipc::Link::kNone), std::memory_order_release);
  });
  context.device->fabric->tell_links(context);
  context.srqs.each([](Srq& srq) {
    for (const uint32_t slot : std::exchange(srq.kept_back, {})) srq.give_back(slot);
  });
  context.cqs.each([](Cq& cq) {
    if (std::exchange(cq.missed, false)) cq.notify(true);
  });
  context.send_events();
  context.qps.each([](Qp& qp) {
    if (qp.is_in_error()) qp.tell_flush();
    for (Qp* one : {&qp, qp.link.in}) {
      if (one == nullptr || one->sender == nullptr) continue;
      one->sender->port_changed();
      one->sender->kick();
    }
  });
}

base::Result<void> exchange_files(Context& context, SharedFiles files) {
  auto heap_file = files.arena.duplicate();
  auto claims_file = files.bells.duplicate();
  if (!heap_file || !claims_file) return base::fail(ENFILE, "keep the memory of a session open");
  if (auto shown = context.arena->show(files.arena); !shown) return shown;
  if (auto shown = context.bells.show(files.bells); !shown) return shown;
  context.heap->exchange(std::move(*heap_file));
  context.claims_heap->exchange(std::move(*claims_file));
  context.arena_fd = std::move(files.arena);
  context.arena_read_only = std::move(files.arena_read_only);
  context.bell_fd = std::move(files.bells);
  context.events = std::move(files.events);
  return {};
}

base::Result<void> begin_epoch(Context& context, uint32_t epoch) {
  uint32_t before = context.epoch;
  auto& shared = context.arena->at<ipc::ArenaHeader>(0)->epoch;
  if (!shared.compare_exchange_strong(before, epoch))
    return base::fail(ESTALE, "its program has given the session up");
  context.epoch = epoch;
  context.qps.each([](Qp& qp) {
    if (qp.link.out_direct && qp.sender) qp.sender->adopted();
  });
  return {};
}

}  // namespace vrdma::rdma
