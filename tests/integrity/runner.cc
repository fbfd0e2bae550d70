#include "tests/integrity/runner.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tests/integrity/post.h"
#include "tests/integrity/wait.h"

namespace integrity {
namespace {

constexpr unsigned kBatches = 80;  // of an epoch
// What could still be stored after an epoch has ended would be by now.
constexpr auto kAfterEnd = std::chrono::milliseconds(5);

}  // namespace

Runner::Runner(Options options, Meeting* meeting)
    : options_(std::move(options)),
      meeting_(meeting),
      random_(mixed(options_.seed + 77) + options_.number) {}

void Runner::run() {
  for (;;) {
    const uint32_t number = meeting_->epoch();
    const bool complete = epoch(number);
    ++counts().epochs;
    if (!complete) ++counts().lost_epochs;
    if (complete && meeting_->is_over()) return;
    if (complete) meeting_->next_epoch();
  }
}

ibv_context* Runner::open_device() const {
  // A device is not listed while no daemon runs.
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::seconds(options_.kills ? 10 : 0);
  do {
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    for (int i = 0; i < count; ++i) {
      if (options_.device != ibv_get_device_name(list[i])) continue;
      ibv_context* const opened = ibv_open_device(list[i]);
      if (opened == nullptr) fail("ibv_open_device: %s", std::strerror(errno));
      ibv_free_device_list(list);
      return opened;
    }
    ibv_free_device_list(list);
  } while (std::chrono::steady_clock::now() < until);
  fail("there is no %s", options_.device.c_str());
}

bool Runner::epoch(uint32_t number) {
  const uint64_t seed = mixed(options_.seed) + options_.first_epoch + number;
  place() = "member " + std::to_string(options_.number) + ", epoch " +
            std::to_string(options_.first_epoch + number);
  world_ = std::make_unique<World>(
      make_world(seed, options_.members, options_.unreliable, options_.without));
  model_ = std::make_unique<Model>(*world_);
  device_ = std::make_unique<Device>(open_device(), options_.gid_index, *world_, options_.number,
                                     options_.kills);
  device_->datagrams().may_come_twice(options_.lossy || options_.kills);
  device_->datagrams().may_leave_parts(leaves_parts());
  bool lost = false;
  const auto unless_lost = [&](auto part) {
    try {
      if (!lost) part();
    } catch (const Lost&) {
      lost = true;
    }
  };
  unless_lost([&] { work_epoch(); });
  close_device();
  unless_lost([&] { (void)meeting_->gather({}); });  // all members have closed their devices
  look_after_end();
  device_.reset();
  return !lost;
}

void Runner::work_epoch() {
  down_.clear();
  for (unsigned link = 0; link < world_->links.size(); ++link) down_.insert(link);
  infos_ = meeting_->gather(device_->info());
  device_->datagrams().meet(infos_);
  const std::string where = place();
  for (unsigned number = 0; number < kBatches; ++number) {
    place() = where + ", batch " + std::to_string(number);
    Batch batch = make_batch(*world_, number);
    if (batch.ending) {
      const Link& link = world_->links[batch.ending->link];
      place() += ", link " + std::to_string(batch.ending->link) + " ends by " +
                 kWayNames[static_cast<size_t>(batch.ending->way)] + " of member " +
                 std::to_string(link.ends[batch.ending->by].member);
    }
    run(&batch);
    ++counts().batches;
  }
  place() = where + ", its end";
}

namespace {
uint64_t key_after_end(const World& world, size_t area) { return mixed(world.seed ^ (area + 1)); }
}  // namespace

void Runner::close_device() {
  if (child_ > 0) ::waitpid(child_, nullptr, 0);
  child_ = -1;
  device_->close(!world_->close_only);
  for (size_t i = 0; i < world_->members[options_.number].areas.size(); ++i)
    fill(device_->area(i), key_after_end(*world_, i));
}

void Runner::look_after_end() {
  std::this_thread::sleep_for(kAfterEnd);
  for (size_t i = 0; i < world_->members[options_.number].areas.size(); ++i) {
    if (!is_filled(device_->area(i), key_after_end(*world_, i)))
      fail("memory has changed after the device was closed");
  }
}

// --- a batch ---

void Runner::run(Batch* batch) {
  Ledger& ledger = device_->ledger();
  ledger.begin_batch();
  for (const auto& [member, region] : batch->anew)
    if (member == options_.number) device_->register_anew(region, &random_);
  const unsigned spare = world_->members[options_.number].spare;
  if (device_->region(spare) == nullptr) device_->register_anew(spare, &random_);
  connect_links();
  bind_windows(*batch);
  Prediction prediction = model_->apply(batch);
  prepare(*batch, &prediction);
  infos_ = meeting_->gather(device_->info());
  work(*batch);
  (void)meeting_->gather({});
  finish(*batch);
  compare(*batch);
}

void Runner::connect_links() {
  if (down_.empty()) return;
  for (Endpoint& one : device_->endpoints())
    if (down_.contains(one.link) && !one.connected) device_->create(&one);
  infos_ = meeting_->gather(device_->info());
  for (Endpoint& one : device_->endpoints()) {
    if (!down_.contains(one.link)) continue;
    device_->connect(&one, infos_[world_->links[one.link].ends[1 - one.side].member]);
  }
  (void)meeting_->gather({});
  down_.clear();
}

void Runner::bind_windows(const Batch& batch) {
  for (const Stream& stream : batch.streams)
    if (stream.window != Window::kNone && is_far(stream))
      device_->bind(device_->endpoint(stream.link, 1 - stream.from), stream.window, &stream.bound);
  wait([&] { return device_->ledger().is_settled(); }, "binding windows");
}

void Runner::prepare(const Batch& batch, Prediction* prediction) {
  Ledger& ledger = device_->ledger();
  ended_ = false;
  all_posted_since_ = {};
  doubts_ = std::move(prediction->doubts);
  for (const Endpoint& one : device_->endpoints())
    if (batch.ends(one.link)) ledger.doubt(one.qp->qp_num);
  for (const Stream& stream : batch.streams) {
    if (!is_far(stream)) continue;
    const Endpoint& endpoint = device_->endpoint(stream.link, 1 - stream.from);
    for (Message& message : prediction->messages[&stream])
      ledger.message(endpoint.qp->qp_num, std::move(message));
    post_receives(device_.get(), endpoint, stream, 0,
                  stream.late ? stream.receives.size() / 2 : stream.receives.size());
  }
  device_->shared().post(leaves_parts() || shared_in_doubt(batch));
  device_->datagrams().post();
  if (batch.ping_pong) prepare_ping_pong(*batch.ping_pong);
}

// A link that ends takes receives of this member's SRQ, and may give one back that it has begun.
bool Runner::shared_in_doubt(const Batch& batch) const {
  if (!batch.ending) return false;
  const auto& ends = world_->links[batch.ending->link].ends;
  return std::ranges::any_of(
      ends, [&](const End& end) { return end.member == options_.number && end.shared_receives; });
}

void Runner::work(const Batch& batch) {
  struct Rest {
    const Stream* stream;
    bool receives;
    size_t next;
  };
  std::vector<Rest> rests;
  for (const Stream& stream : batch.streams) {
    if (device_->has(stream.link, stream.from)) rests.push_back({&stream, false, 0});
    if (is_far(stream) && stream.late && !stream.receives.empty())
      rests.push_back({&stream, true, stream.receives.size() / 2});
  }
  unsigned datagrams = batch.datagrams;
  if (options_.forks && random_.one_in(20)) fork_child();
  while (!rests.empty()) {
    Rest& rest = rests[random_.below(rests.size())];
    const Stream& stream = *rest.stream;
    const size_t size = rest.receives ? stream.receives.size() : stream.ops.size();
    size_t count = std::min(size - rest.next, random_.between(1, 5));
    // An end that this member has ended gets nothing any more.
    const unsigned side = rest.receives ? 1 - stream.from : stream.from;
    if (ended_ && batch.ends(stream.link) && batch.ending->by == side) rest.next = size, count = 0;
    if (rest.receives) {
      post_receives(device_.get(), device_->endpoint(stream.link, 1 - stream.from), stream,
                    rest.next, count);
    } else {
      const Endpoint& endpoint = device_->endpoint(stream.link, stream.from);
      for (size_t i = 0; i < count; ++i)
        post(device_.get(), endpoint, stream, stream.ops[rest.next + i], infos_, &random_);
    }
    rest.next += count;
    if (rest.next == size) rests.erase(rests.begin() + (&rest - rests.data()));
    if (datagrams > 0 && random_.one_in(4)) {
      device_->datagrams().send(static_cast<uint32_t>(random_.between(1, kDatagramSize)),
                                random_.one_in(4));
      --datagrams;
    }
    if (random_.one_in(3)) poll();
    if (random_.one_in(8)) look();
    if (random_.one_in(200))
      device_->stations()[random_.below(device_->stations().size())]->resize(
          static_cast<uint32_t>(random_.between(4096, 9000)));
    end_if_due(batch, false);
  }
  if (batch.ping_pong) ping_pong(batch);
  all_posted_since_ = std::chrono::steady_clock::now();
  wait(
      [&] {
        end_if_due(batch, true);
        return device_->ledger().is_settled() && device_->datagrams().is_settled() &&
               (!batch.ending || !device_->has(batch.ending->link, batch.ending->by) || ended_);
      },
      "a batch");
  look();
}

void Runner::finish(const Batch& batch) {
  release_windows(batch);
  if (child_ > 0) {
    int status = 0;
    if (::waitpid(child_, &status, 0) != child_ || status != 0)
      fail("a child ends with status 0x%x", status);
    child_ = -1;
  }
  const bool ends = batch.ending.has_value();
  if (ends) {
    end_other_side(batch);
    for (unsigned side = 0; side < 2; ++side) {
      if (!device_->has(batch.ending->link, side)) continue;
      Endpoint& one = device_->endpoint(batch.ending->link, side);
      if (one.qp != nullptr && one.connected) {
        if (random_.one_in(2))
          device_->reset(&one);
        else
          device_->destroy(&one);
      }
    }
    down_.insert(batch.ending->link);
    for (const Doubt& doubt : doubts_)
      model_->refill(doubt.member, doubt.piece, refill_key(batch, doubt.piece));
  }
  if (const auto& plan = batch.ping_pong; plan) {
    for (unsigned side = 0; side < 2; ++side)
      for (const Piece* piece : {&plan->data[side], &plan->flag[side], &plan->answer[side]}) {
        const unsigned member = world_->links[plan->link].ends[side].member;
        model_->refill(member, *piece, refill_key(batch, *piece));
        if (member == options_.number)
          fill({device_->at(*piece), piece->length}, refill_key(batch, *piece));
      }
  }
  device_->shared().check();
}

void Runner::release_windows(const Batch& batch) {
  for (const Stream& stream : batch.streams) {
    if (stream.window == Window::kNone || !is_far(stream)) continue;
    if (!stream.ops.empty() && stream.ops.back().kind == Kind::kSendInvalidate) continue;
    device_->invalidate(device_->endpoint(stream.link, 1 - stream.from), stream.window);
  }
  wait([&] { return device_->ledger().is_settled(); }, "releasing windows");
}

void Runner::compare(const Batch& batch) {
  for (size_t i = 0; i < world_->members[options_.number].areas.size(); ++i) {
    const auto found = device_->area(i);
    const auto expected = model_->area(options_.number, i);
    if (std::memcmp(found.data(), expected.data(), found.size()) == 0) continue;
    const auto at = std::ranges::mismatch(found, expected).in1 - found.begin();
    report(batch, i, static_cast<size_t>(at));
  }
}

void Runner::report(const Batch& batch, size_t area, size_t at) const {
  const auto found = device_->area(area);
  const auto expected = model_->area(options_.number, area);
  size_t wrong = 0;
  for (size_t i = 0; i < found.size(); ++i) wrong += found[i] != expected[i] ? 1 : 0;
  std::string uses;
  const auto use = [&](unsigned member, const Piece& piece, const std::string& words) {
    if (member == options_.number && piece.area == area && piece.at <= at &&
        at < piece.at + piece.length)
      uses += "\n  " + words + " of " + std::to_string(piece.length) + " bytes from " +
              std::to_string(piece.at);
  };
  for (const Stream& stream : batch.streams) {
    const Link& link = world_->links[stream.link];
    for (size_t i = 0; i < stream.ops.size(); ++i) {
      const Op& op = stream.ops[i];
      const std::string words = std::string(kKindNames[static_cast<size_t>(op.kind)]) + " " +
                                std::to_string(i) + " of link " + std::to_string(stream.link) +
                                " from side " + std::to_string(stream.from) +
                                (op.fenced ? ", fenced" : "") + (op.inlined ? ", inline" : "") +
                                (batch.ends(stream.link) ? ", which ends" : "");
      for (const Piece& piece : op.local)
        use(link.ends[stream.from].member, piece, words + ": local");
      if (!is_send(op.kind)) use(link.ends[1 - stream.from].member, op.remote, words + ": remote");
    }
    for (size_t i = 0; i < stream.receives.size(); ++i)
      for (const Piece& piece : stream.receives[i].pieces)
        use(link.ends[1 - stream.from].member, piece,
            "receive " + std::to_string(i) + " of link " + std::to_string(stream.link));
  }
  const Area& plan = world_->members[options_.number].areas[area];
  fail("area %zu (%s, %u bytes): %zu bytes are wrong; the first, %zu, is 0x%02x and not 0x%02x%s",
       area, kMemoryNames[static_cast<size_t>(plan.memory)], plan.size, wrong, at, found[at],
       expected[at], uses.empty() ? "\n  which nothing uses" : uses.c_str());
}

// --- waiting ---

bool Runner::poll() {
  bool any = false;
  for (const auto& station : device_->stations()) any |= station->poll();
  return any;
}

void Runner::look() {
  meeting_->look();
  Ledger& ledger = device_->ledger();
  if (!ledger.has_complaint()) return;
  meeting_->look(3000);  // throws, if a member has died
  if (options_.kills && ledger.is_of_atomic()) {
    ++counts().atomics_in_doubt;
    std::printf("%s: %s: in doubt\n", place().c_str(), ledger.complaint().c_str());
    meeting_->give_up();
  }
  fail("%s", ledger.complaint().c_str());
}

void Runner::fork_child() {
  if (child_ > 0) return;
  child_ = ::fork();
  if (child_ < 0) fail("fork");
  ++counts().forks;
  if (child_ > 0) return;
  ::alarm(30);
  const std::vector<Area>& areas = world_->members[options_.number].areas;
  for (size_t i = 0; i < areas.size(); ++i)
    if (areas[i].memory != Memory::kShared)
      std::memset(device_->area(i).data(), 0xcc, device_->area(i).size());
  ::_exit(0);
}

}  // namespace integrity
