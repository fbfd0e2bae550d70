// Which vdevice holds which GID, in each fabric.
//
// A GID has one holder in a fabric; fabrics do not know each other, so that the same address in
// two of them is normal. A vdevice claims its GIDs all or none when it is made. Later its netdev
// gets and loses addresses: one that another vdevice of the fabric holds is then left out of the
// table and told to the caller, and asked for again once its holder gave it up.
//
// Belongs to the control thread, as do its holdings.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/error.h"
#include "core/verbs/gid.h"
#include "gid/table.h"

namespace vrdma::gid {

class Registry {
 public:
  struct Refusal {
    verbs::Gid gid;
    std::string holder;
    std::string sentence;  // names the GID, the fabric and the holder
  };

  struct Update {
    Table::Change change;
    std::vector<Refusal> refusals;  // new ones: each GID once, until it is granted or not wanted
  };

  // What a vdevice holds. Move-only; the destructor gives all up. Must not outlive the registry.
  class Holding {
   public:
    Holding();  // holds nothing, like one moved from or reset: update() is not for it
    Holding(Holding&& other) noexcept;
    Holding& operator=(Holding&& other) noexcept;
    Holding(const Holding&) = delete;
    Holding& operator=(const Holding&) = delete;
    ~Holding();
    void reset();

    // The vdevice's GID table: what it wanted and was granted.
    [[nodiscard]] const std::vector<verbs::Gid>& gids() const;

    // Gives up what is not in `wanted` any more and claims what is new there.
    Update update(const std::vector<verbs::Gid>& wanted);

    // GIDs wanted now that another vdevice holds.
    [[nodiscard]] size_t refused() const;

   private:
    friend class Registry;
    struct State;
    explicit Holding(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
  };

  Registry();
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // EADDRINUSE with a sentence that names the GID, the fabric and the holder; nothing is claimed
  // then. `retry` is called when a GID that an update() was refused is free again: call update()
  // then, but not from inside `retry`, which runs while the other vdevice's claims change. So it
  // may only make a note, or post() to an event loop.
  [[nodiscard]] base::Result<Holding> claim(const std::string& fabric, const std::string& holder,
                                            const std::vector<verbs::Gid>& wanted,
                                            std::function<void()> retry);

  // The vdevice that holds `gid` in `fabric`, or null. Valid until claims change.
  [[nodiscard]] const std::string* holder(const std::string& fabric, const verbs::Gid& gid) const;

  // GIDs refused since the registry was made.
  [[nodiscard]] uint64_t refusals() const { return refusals_; }

 private:
  struct Fabric;
  void give_up(Holding::State* state, const std::vector<verbs::Gid>& gids);
  void leave(Holding::State* state);
  static std::string sentence(const Holding::State& holder, const verbs::Gid& gid);

  std::map<std::string, std::unique_ptr<Fabric>> fabrics_;  // those with a holding
  uint64_t refusals_ = 0;
};

}  // namespace vrdma::gid
