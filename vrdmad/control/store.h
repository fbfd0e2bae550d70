// What operators and orchestrators have configured, on disk: an SQLite database in the state
// directory S.
//
//   S/state.db, S/state.db-wal   0600, in a directory of 0700
//
// Write-ahead log, synchronous=FULL: if write() returns success, the change is on disk; if it
// returns an error, nothing has changed. The daemon locks the database while it lives
// (locking_mode=EXCLUSIVE). user_version is the number of the schema: open() migrates an older
// schema step by step (kMigrations in store_schema.h; add a step to add a table or a column) and
// refuses a newer one.
//
// A full disk: state.db-wal has kReserve bytes, also without a daemon, and a change that makes the
// database larger first allocates its pages in state.db. So the log can be copied into state.db and
// begun anew, and a change that needs no new page, such as a deletion, is possible.
//
// Used by one thread at a time: the control thread at the start, then the store thread
// (store_thread.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/base/error.h"
#include "core/base/fd.h"
#include "core/verbs/gid.h"
#include "gid/node_guid.h"
#include "vrdmad/admin/backend.h"

struct sqlite3;
struct sqlite3_stmt;

namespace vrdma::vrdmad {

// A vdevice: its specification, and what a restored one must keep.
struct StoredVdev {
  uint64_t id = 0;  // never reused, not even after a deletion
  VdevSpec spec;    // `netdev` follows renames, `quota` later changes; names are resolved
  gid::NodeGuid node_guid;
  // Its location. Within one boot the cookie identifies the namespace; after a reboot only the name
  // does.
  std::string boot_id;
  uint64_t netns_cookie = 0;
  uint32_t ifindex = 0;
  uint32_t number = 0;           // of its session socket, within the namespace
  std::vector<verbs::Gid> gids;  // in the order of its table, because programs use indices
  // The GIDs of its netdev's addresses at its creation; first the default GID of its MAC, if it had
  // one.
  std::vector<verbs::Gid> first_addresses;
  std::vector<QuotaSetting> asked;  // the quota of the create request, by kind

  // It waits for a netdev with an address. Until then it has no netdev, GIDs and addresses.
  [[nodiscard]] bool pending() const { return ifindex == 0; }

  bool operator==(const StoredVdev&) const = default;
};

class Store {
 public:
  static constexpr int64_t kReserve = 256 << 10;  // bytes

  // EBUSY: another daemon uses it. Makes nothing; open() decides.
  [[nodiscard]] static base::Result<void> check_free(const std::string& dir);
  // Makes `dir` (0700) and the database if missing. EBUSY: another daemon uses it. Every error is
  // one sentence that names the file: not writable, no database, damaged, written by a newer
  // vrdmad. A full disk is an error only if there is no database of this schema.
  [[nodiscard]] static base::Result<std::unique_ptr<Store>> open(const std::string& dir);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // By id. An error means a damaged file.
  [[nodiscard]] base::Result<std::vector<StoredVdev>> vdevs();
  // All settings of tenants and parents.
  [[nodiscard]] base::Result<std::vector<BudgetSpec>> budgets();
  // The fabrics with other settings than those that each fabric has at first, by name.
  [[nodiscard]] base::Result<std::vector<FabricSpec>> fabrics();

  // By uid, in the form of Claims::canonical().
  [[nodiscard]] base::Result<std::vector<ClaimSpec>> claims();

  // Reserves `count` ids on disk. No daemon on this store has used them, and none but this one ever
  // will, however it ends. If the disk is full, reserves none: the first is the next to reserve.
  struct Ids {
    uint64_t first = 0;
    uint64_t count = 0;
  };
  [[nodiscard]] base::Result<Ids> reserve_ids(uint64_t count);

  // Deletes a vdevice; no error if it is not stored.
  struct Forgotten {
    uint64_t id = 0;
  };
  // Stores a vdevice and deletes the ones that it replaces.
  struct Replacement {
    StoredVdev vdev;
    std::vector<uint64_t> others;
  };
  // Ids up to this one are reserved.
  struct Reserved {
    uint64_t last = 0;
  };
  // Deletes a claim; no error if it is not stored.
  struct ForgottenClaim {
    std::string uid;
  };
  // A StoredVdev, BudgetSpec, FabricSpec or ClaimSpec is added, or replaces the one of the same id
  // or name. A fabric whose settings are those that each has at first is deleted.
  using Change = std::variant<StoredVdev, BudgetSpec, FabricSpec, ClaimSpec, Forgotten,
                              ForgottenClaim, Replacement, Reserved>;
  // Makes the changes in order: in one transaction if all succeed, else each in its own. Returns
  // the result of each. ENOSPC: the disk has no room for it; later changes are tried again.
  [[nodiscard]] std::vector<base::Result<void>> write(const std::vector<Change>& changes);
  // Number of committed transactions. Any thread.
  [[nodiscard]] uint64_t commits() const { return commits_; }

 private:
  class Statement;
  class Transaction;

  Store(std::string path, sqlite3* db) : path_(std::move(path)), db_(db) {}
  [[nodiscard]] base::Result<void> prepare();
  [[nodiscard]] base::Result<void> check_and_migrate();
  [[nodiscard]] base::Result<void> migrate();
  [[nodiscard]] base::Result<uint64_t> number_of(const char* sql);
  [[nodiscard]] base::Result<void> execute(const std::string& sql);
  [[nodiscard]] base::Result<void> open_files();
  [[nodiscard]] std::string said() const;  // by SQLite
  [[nodiscard]] tl::unexpected<base::Error> failure() const;
  [[nodiscard]] tl::unexpected<base::Error> disk_full() const;
  [[nodiscard]] base::Result<void> commit(const Change* changes, size_t count);
  [[nodiscard]] base::Result<void> try_to_commit(const Change* changes, size_t count);
  [[nodiscard]] bool has_reserve();
  [[nodiscard]] base::Result<void> allocate_pages();
  void make_room();
  [[nodiscard]] base::Result<void> make(const BudgetSpec& budget);
  [[nodiscard]] base::Result<void> make(const FabricSpec& fabric);
  [[nodiscard]] base::Result<void> make(const StoredVdev& vdev);
  [[nodiscard]] base::Result<void> make(const ClaimSpec& claim);
  [[nodiscard]] base::Result<void> make(const ForgottenClaim& forgotten);
  [[nodiscard]] base::Result<void> make(const Forgotten& forgotten);
  [[nodiscard]] base::Result<void> make(const Replacement& replacement);
  [[nodiscard]] base::Result<void> make(const Reserved& reserved);

  std::string path_;
  // Closed after the database: a process that closes any descriptor of a file loses its locks on
  // it.
  base::Fd file_, log_;
  int64_t size_ = 0;  // bytes of state.db after the last change, also of one that failed
  sqlite3* db_ = nullptr;
  std::atomic<uint64_t> commits_ = 0;
};

}  // namespace vrdma::vrdmad
