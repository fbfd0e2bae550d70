#include "tests/sim/workers.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <variant>

namespace vrdma::sim {

using provisioning::Kind;
using vrdmad::Limit;
using vrdmad::Parcel;
using vrdmad::ToControl;

void KnownVdevice::show_limits() const {
  std::vector<provisioning::Setting> settings;
  for (const auto& [kind, limit] : limits)
    settings.push_back({std::string(provisioning::traits(kind).name), limit});
  provisioning::Ledger shown(vrdmad::part(page, &vrdmad::VdevicePage::quota));
  (void)shown.set_limits(settings);
}

struct Workers::One {
  Workers& all;
  vrdmad::Workers::Tell tell;
  vrdmad::Workers::Ended ended;
  std::deque<Parcel> inbox{};
  std::map<uint64_t, KnownVdevice> vdevices{};
  std::map<uint64_t, uint64_t> connections{};  // their vdevices
  base::TimePoint stopped_until{};
  bool serving = false, dead = false;

  // As a message on the loop of control.
  void say(ToControl message) const {
    all.loop_.post([its = tell, message = std::move(message)] { its(message); });
  }
  void end_connection(uint64_t number) {
    connections.erase(number);
    say(vrdmad::Ended{number});
  }
  [[nodiscard]] vrdmad::Done change(const std::vector<Limit>& limits, uint64_t vdevice,
                                    uint64_t ticket, bool check);
  void take(Parcel parcel);
};

class Workers::End final : public vrdmad::WorkerEnd {
 public:
  End(std::shared_ptr<One> one, uint32_t entry) : one_(std::move(one)), entry_(entry) {}
  ~End() override {
    one_->dead = true;
    one_->all.broker_.remove_worker(entry_);
    one_->all.living_.erase(entry_);
  }
  using WorkerEnd::send;
  void send(Parcel parcel) override {
    if (one_->dead) return;
    one_->inbox.push_back(std::move(parcel));
    serve(one_);
  }
  void leave() override {}
  [[nodiscard]] uint32_t entry() const override { return entry_; }

 private:
  const std::shared_ptr<One> one_;
  const uint32_t entry_;
};

vrdmad::Outside::StartWorker Workers::starter() {
  return [this](const vrdmad::Workers::Tell& tell, const vrdmad::Workers::Ended& ended)
             -> base::Result<std::unique_ptr<vrdmad::WorkerEnd>> {
    auto one = std::make_shared<One>(One{*this, tell, ended});
    const uint32_t entry = broker_.add_worker();
    living_.emplace(entry, one);
    return std::make_unique<End>(std::move(one), entry);
  };
}

// One message after the other, each when its time has come.
void Workers::serve(const std::shared_ptr<One>& one) {
  if (one->serving || one->dead || one->inbox.empty()) return;
  one->serving = true;
  Host& host = one->all.host_;
  const auto delay = std::max(host.chance.up_to(one->all.mood_.longest),
                              base::Duration(one->stopped_until - host.time.now()));
  host.after(delay, [weak = std::weak_ptr(one)] {
    const auto its = weak.lock();
    if (its == nullptr || its->dead) return;
    its->serving = false;
    if (its->stopped_until <= its->all.host_.time.now()) {
      Parcel parcel = std::move(its->inbox.front());
      its->inbox.pop_front();
      its->take(std::move(parcel));
    }
    serve(its);
  });
}

vrdmad::Done Workers::One::change(const std::vector<Limit>& limits, uint64_t vdevice,
                                  uint64_t ticket, bool check) {
  const auto found = vdevices.find(vdevice);
  if (found == vdevices.end()) return {ticket, ENODEV, "it has no such vdevice"};
  const uint64_t refuses = all.mood_.refuses_one_in;
  if (ticket != 0 && refuses != 0 && all.host_.chance.one_in(refuses))
    return {ticket, EBUSY, "more is in use"};
  if (!check)
    for (const Limit& one : limits) found->second.limits[one.kind] = one.limit;
  if (!check) found->second.show_limits();
  return {ticket, 0, {}};
}

void Workers::One::take(Parcel parcel) {
  std::visit(
      [this, beside = &parcel.beside](const auto& message) {
        using Message = std::decay_t<decltype(message)>;
        if constexpr (std::is_same_v<Message, vrdmad::AddVdevice>) {
          KnownVdevice& its = vdevices[message.vdevice];
          its = {message, {}, {}, {}, vrdmad::parts_of(std::move(*beside)).value().page.get()};
          for (const Limit& one : message.limits) its.limits[one.kind] = one.limit;
          its.show_limits();
        } else if constexpr (std::is_same_v<Message, vrdmad::RemoveVdevice>) {
          vdevices.erase(message.vdevice);
          for (const auto& [number, vdevice] : std::map(connections))
            if (vdevice == message.vdevice) end_connection(number);
          if (message.ticket != 0) say(vrdmad::Done{message.ticket, 0, {}});
        } else if constexpr (std::is_same_v<Message, vrdmad::NewConnection>) {
          say(vrdmad::Accepted{message.number});
          if (vdevices.contains(message.vdevice))
            connections[message.number] = message.vdevice;
          else
            say(vrdmad::Ended{message.number});
        } else if constexpr (std::is_same_v<Message, vrdmad::SetPort>) {
          if (const auto found = vdevices.find(message.vdevice); found != vdevices.end())
            found->second.port = message.status;
        } else if constexpr (std::is_same_v<Message, vrdmad::SetGids>) {
          if (const auto found = vdevices.find(message.vdevice); found != vdevices.end())
            found->second.gids = message.gids;
        } else if constexpr (std::is_same_v<Message, vrdmad::SetWays>) {
          if (const auto found = vdevices.find(message.vdevice); found != vdevices.end())
            found->second.added.ways = message.ways;
        } else if constexpr (std::is_same_v<Message, vrdmad::CheckLimits>) {
          say(change(message.limits, message.vdevice, message.ticket, true));
        } else if constexpr (std::is_same_v<Message, vrdmad::SetLimits>) {
          auto done = change(message.limits, message.vdevice, message.ticket, false);
          if (done.error == 0) vdevices.at(message.vdevice).added.limited = message.limited;
          if (message.ticket != 0) say(std::move(done));
        } else if constexpr (std::is_same_v<Message, vrdmad::Collect>) {
          say(vrdmad::Done{message.ticket, 0, {}});
        } else if constexpr (std::is_same_v<Message, vrdmad::AskCgroups>) {
          say(vrdmad::CgroupUse{message.ticket, {}, false});
        } else if constexpr (std::is_same_v<Message, vrdmad::AskQueuePairs>) {
          say(vrdmad::QueuePairs{message.ticket, {}, false});
        } else if constexpr (std::is_same_v<Message, vrdmad::AskExports>) {
          say(vrdmad::Exports{message.ticket, {}, false});
        }
      },
      parcel.message);
}

bool Workers::at_rest() const {
  return std::all_of(living_.begin(), living_.end(),
                     [](const auto& one) { return one.second->inbox.empty(); });
}

std::vector<const std::map<uint64_t, KnownVdevice>*> Workers::known() const {
  std::vector<const std::map<uint64_t, KnownVdevice>*> all;
  for (const auto& [entry, one] : living_) all.push_back(&one->vdevices);
  return all;
}

bool Workers::kill_one(Chance& chance) {
  if (living_.empty()) return false;
  const auto one = std::next(living_.begin(), static_cast<ptrdiff_t>(chance.below(living_.size())));
  if (one->second->dead) return false;
  one->second->dead = true;
  broker_.remove_worker(one->first);
  loop_.post([ended = one->second->ended] { ended("killed"); });
  return true;
}

bool Workers::stop_one(Chance& chance, base::Duration how_long) {
  if (living_.empty()) return false;
  const auto one = std::next(living_.begin(), static_cast<ptrdiff_t>(chance.below(living_.size())));
  one->second->stopped_until = host_.time.now() + how_long;
  return true;
}

bool Workers::end_program(Chance& chance) {
  for (const auto& [entry, one] : living_) {
    if (one->dead || one->connections.empty()) continue;
    const auto number = std::next(one->connections.begin(),
                                  static_cast<ptrdiff_t>(chance.below(one->connections.size())));
    one->end_connection(number->first);
    return true;
  }
  return false;
}

}  // namespace vrdma::sim
