// Tracks which vdevice holds which GID in each fabric.
//
// A GID has at most one holder in a fabric. Fabrics are independent, so the same address in two of
// them is normal. A vdevice claims all its GIDs or none when it is created. When its netdev gets an
// address later that another vdevice of the fabric holds, the GID is omitted from the table and
// reported to the caller, which may claim it again after its holder released it.
//
// Owned by the control thread, as are its holdings.
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
    std::vector<Refusal> refusals;  // new ones: each GID once, until granted or no longer wanted
  };

  // The GIDs of a vdevice. Move-only; the destructor releases them. Must not outlive the registry.
  class Holding {
   public:
    Holding();  // empty, as after a move or reset(); do not call update() on it
    Holding(Holding&& other) noexcept;
    Holding& operator=(Holding&& other) noexcept;
    Holding(const Holding&) = delete;
    Holding& operator=(const Holding&) = delete;
    ~Holding();
    void reset();

    // The vdevice's GID table: the wanted GIDs that were granted.
    [[nodiscard]] const std::vector<verbs::Gid>& gids() const;

    // Releases the GIDs that are no longer in `wanted` and claims the new ones.
    Update update(const std::vector<verbs::Gid>& wanted);

    // How many wanted GIDs another vdevice holds.
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

  // EADDRINUSE, with a sentence that names the GID, the fabric and the holder, claims nothing.
  // `retry` is called when a GID that update() was refused becomes free. It must not call update()
  // itself, because it runs while the other vdevice's claims change: set a flag or post() to an
  // event loop instead.
  [[nodiscard]] base::Result<Holding> claim(const std::string& fabric, const std::string& holder,
                                            const std::vector<verbs::Gid>& wanted,
                                            std::function<void()> retry);

  // The vdevice that holds `gid` in `fabric`, or null. Valid until claims change.
  [[nodiscard]] const std::string* holder(const std::string& fabric, const verbs::Gid& gid) const;

  // GIDs refused since the registry was created.
  [[nodiscard]] uint64_t refusals() const { return refusals_; }

 private:
  struct Fabric;
  void give_up(Holding::State* state, const std::vector<verbs::Gid>& gids);
  void leave(Holding::State* state);
  static std::string sentence(const Holding::State& holder, const verbs::Gid& gid);

  std::map<std::string, std::unique_ptr<Fabric>> fabrics_;  // those with at least one holding
  uint64_t refusals_ = 0;
};

}  // namespace vrdma::gid
