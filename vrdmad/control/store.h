// What an operator made, on disk: an SQLite database in the state directory.
//
//   S/state.db, S/state.db-wal   0600, in a directory of 0700
//
// Write-ahead log, synchronous=FULL: what write() has returned success for is on disk, and what it
// has returned an error for has changed nothing. The database
// is locked as long as the daemon lives (locking_mode=EXCLUSIVE). Its form has a number,
// user_version: an older one is migrated step by step when it is opened (kMigrations in store.cc:
// to add a table or a column, add a step), a newer one is refused.
//
// Used by one thread at a time: by the control thread at the start, then by that of store_thread.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/base/error.h"
#include "core/verbs/gid.h"
#include "gid/node_guid.h"
#include "vrdmad/admin/backend.h"

struct sqlite3;
struct sqlite3_stmt;

namespace vrdma::vrdmad {

// A vdevice: what it was made with, and what of it must be again as it was.
struct StoredVdev {
  uint64_t id = 0;  // never another vdevice's, also after this one has gone
  VdevSpec spec;    // `netdev` follows renames, `quota` what was set later; names are resolved
  gid::NodeGuid node_guid;
  // Where it was: within one boot a namespace is known by its cookie, after another only by name.
  std::string boot_id;
  uint64_t netns_cookie = 0;
  uint32_t ifindex = 0;
  uint32_t number = 0;           // of its session socket, within the namespace
  std::vector<verbs::Gid> gids;  // its table: programs use indices
  // What its netdev had when it was made; the default GID of its MAC first, if it had one.
  std::vector<verbs::Gid> first_addresses;
  std::vector<QuotaSetting> asked;  // the quota that was named when it was made; by kind

  bool operator==(const StoredVdev&) const = default;
};

class Store {
 public:
  // Makes `dir` (0700) and the database if they are not there. EBUSY: another daemon has it. All
  // other errors too are one sentence that names the file: not writable, no database, damaged, of a
  // newer vrdmad.
  [[nodiscard]] static base::Result<std::unique_ptr<Store>> open(const std::string& dir);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // By id. An error means a damaged file.
  [[nodiscard]] base::Result<std::vector<StoredVdev>> vdevs();
  // Of tenants and parents; all that was set of each.
  [[nodiscard]] base::Result<std::vector<BudgetSpec>> budgets();

  // The first of `count` ids of vdevices that no daemon has had on this store, and none will have
  // after this one, whatever becomes of it: they are taken on disk before they are used.
  [[nodiscard]] base::Result<uint64_t> reserve_ids(uint64_t count);

  // A vdevice that is not to be known any more; no error if it is not.
  struct Forgotten {
    uint64_t id = 0;
  };
  // A vdevice that takes the place of others, which are forgotten.
  struct Replacement {
    StoredVdev vdev;
    std::vector<uint64_t> others;
  };
  // Ids up to this one are reserved.
  struct Reserved {
    uint64_t last = 0;
  };
  // A vdevice or a budget is added, or replaces what is known by that id or name.
  using Change = std::variant<StoredVdev, BudgetSpec, Forgotten, Replacement, Reserved>;
  // Makes the changes in their order: in one transaction if all of them can be made, else each in
  // its own. The result of each.
  [[nodiscard]] std::vector<base::Result<void>> write(const std::vector<Change>& changes);
  // Transactions that were committed. Any thread.
  [[nodiscard]] uint64_t commits() const { return commits_; }

 private:
  class Statement;
  class Transaction;

  Store(std::string path, sqlite3* db) : path_(std::move(path)), db_(db) {}
  [[nodiscard]] base::Result<void> prepare();
  [[nodiscard]] base::Result<void> migrate();
  [[nodiscard]] base::Result<void> execute(const std::string& sql);
  [[nodiscard]] tl::unexpected<base::Error> failure() const;
  [[nodiscard]] base::Result<void> commit(const Change* changes, size_t count);
  [[nodiscard]] base::Result<void> make(const BudgetSpec& budget);
  [[nodiscard]] base::Result<void> make(const StoredVdev& vdev);
  [[nodiscard]] base::Result<void> make(const Forgotten& forgotten);
  [[nodiscard]] base::Result<void> make(const Replacement& replacement);
  [[nodiscard]] base::Result<void> make(const Reserved& reserved);

  std::string path_;
  sqlite3* db_ = nullptr;
  std::atomic<uint64_t> commits_ = 0;
};

}  // namespace vrdma::vrdmad
