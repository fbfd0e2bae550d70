#include "vrdmad/control/store.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "core/base/name.h"
#include "core/base/printable.h"
#include "vrdmad/control/store_schema.h"
#include "vrdmad/control/store_statement.h"

namespace vrdma::vrdmad {

using base::fail;
using base::fail_errno;
using base::pass;
using base::Result;

namespace {

// Values of `scope` in both budget tables, and of `what` in budget_limit.
constexpr const char *kTenant = "tenant", *kParent = "parent";
constexpr const char *kDefaults = "default", *kCeilings = "ceiling";

int errno_of(int code) {
  switch (code & 0xff) {
    case SQLITE_FULL:
      return ENOSPC;
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
      return EROFS;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return EBUSY;
    case SQLITE_NOMEM:
      return ENOMEM;
    default:
      return EIO;
  }
}

Result<void> make_directory(const std::string& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  struct stat status {};
  if (error || ::stat(dir.c_str(), &status) != 0)
    return fail(error ? error.value() : errno, "make the state directory " + dir + ": " +
                                                   std::strerror(error ? error.value() : errno));
  if ((status.st_mode & 07777) != 0700 && ::chmod(dir.c_str(), 0700) != 0)
    return fail_errno("make the state directory " + dir + " private");
  return {};
}

tl::unexpected<base::Error> in_use(const std::string& path) {
  return fail(EBUSY, "the state in " + path + " is in use by another vrdmad");
}

// False: the disk is full. A filesystem that cannot allocate is not asked.
bool allocate(const base::Fd& file, int64_t size) {
  return ::fallocate(file.get(), 0, 0, size) == 0 || (errno != ENOSPC && errno != EDQUOT);
}

int64_t size_of(const base::Fd& file) {
  struct stat status {};
  return ::fstat(file.get(), &status) == 0 ? status.st_size : 0;
}

}  // namespace

// It may quote what is in a damaged file.
std::string Store::said() const { return base::printable(::sqlite3_errmsg(db_)); }

tl::unexpected<base::Error> Store::failure() const {
  const int code = ::sqlite3_extended_errcode(db_);
  const std::string file = "the state in " + path_;
  switch (code & 0xff) {
    case SQLITE_FULL:
      return disk_full();
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
      return fail(EROFS, "write " + file + ": it is not writable");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return in_use(path_);
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
      return fail(EIO,
                  file + " is damaged (" + said() + "): move it away to begin without vdevices");
    default: {
      std::string reason = said();
      if (const int system = ::sqlite3_system_errno(db_); (code & 0xff) == SQLITE_IOERR && system)
        reason += std::string(", ") + std::strerror(system);
      return fail(errno_of(code), "use " + file + ": " + reason);
    }
  }
}

tl::unexpected<base::Error> Store::disk_full() const {
  const int64_t room = kReserve + std::max<int64_t>(size_ - size_of(file_), 0);
  return fail(ENOSPC, "write the state in " + path_ + ": the disk is full: make room for " +
                          std::to_string(room >> 10) + " KiB on it and try again");
}

// After SQLite has made both.
Result<void> Store::open_files() {
  for (auto [file, path] : {std::pair{&file_, path_}, {&log_, path_ + "-wal"}}) {
    if (file->valid()) continue;
    *file = base::Fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (!file->valid()) return fail_errno("open " + path);
  }
  return {};
}

Result<void> Store::execute(const std::string& sql) {
  if (::sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) return failure();
  return {};
}

// Of SQLite's locks on the file (sqlite.org/fileformat2.html#the_lock_byte_page). Before open(),
// because the end of this descriptor would end those of this process.
Result<void> Store::check_free(const std::string& dir) {
  const std::string path = dir + "/state.db";
  const base::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (file.valid() && ::fcntl(file.get(), F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK)
    return in_use(path);
  return {};
}

Result<std::unique_ptr<Store>> Store::open(const std::string& dir) {
  if (auto made = make_directory(dir); !made) return pass(std::move(made).error());
  const std::string path = dir + "/state.db";
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0 && status.st_size == 0)
    spdlog::warn("{} is empty: vrdmad begins without the vdevices that were in it", path);
  sqlite3* db = nullptr;
  const int opened = ::sqlite3_open_v2(
      path.c_str(), &db,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_NOMUTEX,
      nullptr);
  if (db == nullptr) return fail(ENOMEM, "open " + path + ": no memory");
  std::unique_ptr<Store> store(new Store(path, db));
  if (opened != SQLITE_OK) return store->failure();
  if (::sqlite3_db_readonly(db, "main") == 1)
    return fail(EROFS, "write the state in " + path + ": it is not writable");
  if (auto ready = store->prepare(); !ready) return pass(std::move(ready).error());
  return store;
}

// Leaves a log of kReserve zeros, which has no changes.
Store::~Store() {
  int keep = 1;
  if (log_.valid() && ::sqlite3_wal_checkpoint_v2(db_, nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr,
                                                  nullptr) == SQLITE_OK) {
    ::sqlite3_file_control(db_, "main", SQLITE_FCNTL_PERSIST_WAL, &keep);
    (void)has_reserve();
  }
  ::sqlite3_close_v2(db_);
}

Result<void> Store::prepare() {
  for (const char* pragma : {"PRAGMA locking_mode=EXCLUSIVE", "PRAGMA journal_mode=WAL",
                             "PRAGMA synchronous=FULL", "PRAGMA foreign_keys=ON"})
    if (auto set = execute(pragma); !set) return set;
  auto ready = check_and_migrate();
  if (ready || ready.error().code() != ENOSPC) return ready;
  make_room();
  ready = check_and_migrate();
  if (ready || ready.error().code() != ENOSPC) return ready;
  const auto version = number_of("PRAGMA user_version");
  if (!version || *version != kMigrations.size()) return ready;
  spdlog::warn("vdevices cannot be changed: {}", ready.error().message());
  return {};
}

Result<void> Store::check_and_migrate() {
  // Takes the lock, and finds out whether the database is writable.
  Transaction transaction(*this);
  if (auto begun = transaction.begin(); !begun) return begun;
  Statement check(*this, "PRAGMA quick_check(1)");
  auto row = check.step();
  if (!row) return pass(std::move(row).error());
  if (*row && check.text_at(0) != "ok")
    return fail(EIO, "the state in " + path_ + " is damaged (" + check.text_at(0) +
                         "): move it away to begin without vdevices");
  if (auto done = check.step(); !done) return pass(std::move(done).error());
  if (auto migrated = migrate(); !migrated) return migrated;
  if (auto opened = open_files(); !opened) return opened;
  if (auto allocated = allocate_pages(); !allocated) return allocated;
  return transaction.commit();
}

Result<uint64_t> Store::number_of(const char* sql) {
  Statement statement(*this, sql);
  auto row = statement.step();
  if (!row) return pass(std::move(row).error());
  return statement.number_at(0);
}

Result<void> Store::migrate() {
  auto version = number_of("PRAGMA user_version");
  auto application = number_of("PRAGMA application_id");
  auto tables = number_of("SELECT count(*) FROM sqlite_schema");
  for (auto* number : {&version, &application, &tables})
    if (!*number) return pass(std::move(*number).error());
  if (*application != kApplicationId && *tables != 0)
    return fail(EINVAL, path_ + " is a database of another program");
  if (*version > kMigrations.size())
    return fail(EINVAL, "the state in " + path_ + " is of a newer vrdmad (schema " +
                            std::to_string(*version) + ", this one supports up to " +
                            std::to_string(kMigrations.size()) + ")");
  for (size_t step = *version; step < kMigrations.size(); ++step)
    if (auto done = execute(kMigrations[step]); !done) return done;
  // Write even without a migration, so that a disk that rejects writes is found now.
  return execute("PRAGMA application_id=" + std::to_string(kApplicationId) +
                 ";PRAGMA user_version=" + std::to_string(kMigrations.size()));
}

Result<std::vector<StoredVdev>> Store::vdevs() {
  std::vector<StoredVdev> all;
  Statement vdevs(*this,
                  "SELECT id, name, netns, netdev, parent, tenant, fabric, node_guid, boot_id,"
                  " netns_cookie, ifindex, number, no_direct, owner_pid, owner_start, owner_boot,"
                  " end_with_owner, gid_layout FROM vdev ORDER BY id");
  for (;;) {
    auto row = vdevs.step();
    if (!row) return pass(std::move(row).error());
    if (!*row) return all;
    StoredVdev& vdev = all.emplace_back();
    VdevSpec& spec = vdev.spec;
    int column = 0;
    vdev.id = vdevs.number_at(column++);
    for (auto* text :
         {&spec.name, &spec.netns, &spec.netdev, &spec.parent, &spec.tenant, &spec.fabric})
      *text = vdevs.text_at(column++);
    if (!base::is_name(spec.name))
      return fail(EIO, "the state in " + path_ + " is damaged: the vdevice '" +
                           base::printable(spec.name) + "' " + std::string(base::kNameRule));
    if (!vdevs.blob_at(column++, &vdev.node_guid.bytes))
      return fail(EIO, "the state in " + path_ + " is damaged: vdevice '" + spec.name +
                           "' has no node GUID");
    vdev.boot_id = vdevs.text_at(column++);
    vdev.netns_cookie = vdevs.number_at(column++);
    vdev.ifindex = static_cast<uint32_t>(vdevs.number_at(column++));
    vdev.number = static_cast<uint32_t>(vdevs.number_at(column++));
    spec.no_direct = vdevs.number_at(column++) != 0;
    spec.owner.pid = static_cast<uint32_t>(vdevs.number_at(column++));
    spec.owner.start_time = vdevs.number_at(column++);
    spec.owner.boot_id = vdevs.text_at(column++);
    spec.end_with_owner = vdevs.number_at(column++) != 0;
    spec.gid_layout = vdevs.text_at(column);

    for (const auto& [sql, into] :
         {std::pair{"SELECT kind, value FROM vdev_quota WHERE vdev = ?", &spec.quota},
          {"SELECT kind, value FROM vdev_asked WHERE vdev = ? ORDER BY kind", &vdev.asked}}) {
      Statement quota(*this, sql);
      quota.number(vdev.id);
      for (auto more = quota.step();; more = quota.step()) {
        if (!more) return pass(std::move(more).error());
        if (!*more) break;
        into->push_back({quota.text_at(0), quota.number_at(1)});
      }
    }
    Statement labels(*this, "SELECT key, value FROM vdev_label WHERE vdev = ?");
    labels.number(vdev.id);
    for (auto more = labels.step();; more = labels.step()) {
      if (!more) return pass(std::move(more).error());
      if (!*more) break;
      spec.labels.emplace(labels.text_at(0), labels.text_at(1));
    }
    Statement containers(*this,
                         "SELECT id, pid, start, boot FROM vdev_container WHERE vdev = ?"
                         " ORDER BY place");
    containers.number(vdev.id);
    for (auto more = containers.step();; more = containers.step()) {
      if (!more) return pass(std::move(more).error());
      if (!*more) break;
      spec.containers.push_back({containers.text_at(0),
                                 {static_cast<uint32_t>(containers.number_at(1)),
                                  containers.number_at(2), containers.text_at(3)}});
    }
    Statement permissions(*this, "SELECT name FROM vdev_permission WHERE vdev = ?");
    permissions.number(vdev.id);
    for (auto more = permissions.step();; more = permissions.step()) {
      if (!more) return pass(std::move(more).error());
      if (!*more) break;
      spec.allow.push_back(permissions.text_at(0));
    }
    Statement prefixes(*this, "SELECT prefix FROM vdev_prefix WHERE vdev = ? ORDER BY place");
    prefixes.number(vdev.id);
    for (auto more = prefixes.step();; more = prefixes.step()) {
      if (!more) return pass(std::move(more).error());
      if (!*more) break;
      spec.addresses.push_back(prefixes.text_at(0));
    }
    for (const auto& [sql, into] :
         {std::pair{"SELECT gid FROM vdev_gid WHERE vdev = ? ORDER BY place", &vdev.gids},
          {"SELECT address FROM vdev_first WHERE vdev = ? ORDER BY place",
           &vdev.first_addresses}}) {
      Statement gids(*this, sql);
      gids.number(vdev.id);
      for (auto more = gids.step();; more = gids.step()) {
        if (!more) return pass(std::move(more).error());
        if (!*more) break;
        verbs::Gid gid;
        if (gids.blob_at(0, &gid.bytes)) into->push_back(gid);
      }
    }
  }
}

Result<std::vector<BudgetSpec>> Store::budgets() {
  std::vector<BudgetSpec> all;
  Statement budgets(*this, "SELECT scope, name, overcommit FROM budget ORDER BY scope, name");
  for (;;) {
    auto row = budgets.step();
    if (!row) return pass(std::move(row).error());
    if (!*row) return all;
    BudgetSpec& spec = all.emplace_back();
    spec.scope =
        budgets.text_at(0) == kParent ? BudgetSpec::Scope::kParent : BudgetSpec::Scope::kTenant;
    spec.name = budgets.text_at(1);
    spec.overcommit = static_cast<uint32_t>(budgets.number_at(2));
    Statement limits(*this,
                     "SELECT what, kind, value FROM budget_limit WHERE scope = ? AND name = ?");
    limits.text(budgets.text_at(0)).text(spec.name);
    for (auto more = limits.step();; more = limits.step()) {
      if (!more) return pass(std::move(more).error());
      if (!*more) break;
      auto& into = limits.text_at(0) == kCeilings ? spec.ceilings : spec.defaults;
      into.push_back({limits.text_at(1), limits.number_at(2)});
    }
  }
}

Result<std::vector<FabricSpec>> Store::fabrics() {
  std::vector<FabricSpec> all;
  Statement fabrics(*this, "SELECT name, reach FROM fabric ORDER BY name");
  for (;;) {
    auto row = fabrics.step();
    if (!row) return pass(std::move(row).error());
    if (!*row) return all;
    const auto reach = reach_of(fabrics.text_at(1));
    if (!reach)
      return fail(EIO, "the state in " + path_ + " is damaged: fabric '" + fabrics.text_at(0) +
                           "' has the reach '" + fabrics.text_at(1) + "'");
    all.push_back({fabrics.text_at(0), *reach, {}});
    Statement peers(*this, "SELECT prefix FROM fabric_peers WHERE fabric = ? ORDER BY place");
    peers.text(all.back().name);
    for (;;) {
      auto more = peers.step();
      if (!more) return pass(std::move(more).error());
      if (!*more) break;
      const auto prefix = gid::Prefix::parse(peers.text_at(0));
      if (!prefix)
        return fail(EIO, "the state in " + path_ + " is damaged: peers of fabric '" +
                             all.back().name + "': " + prefix.error().message());
      all.back().peers.push_back(*prefix);
    }
  }
}

std::vector<Result<void>> Store::write(const std::vector<Change>& changes) {
  if (changes.size() > 1 && commit(changes.data(), changes.size()))
    return std::vector<Result<void>>(changes.size());
  std::vector<Result<void>> results;
  for (const auto& change : changes) results.push_back(commit(&change, 1));
  return results;
}

Result<void> Store::commit(const Change* changes, size_t count) {
  auto done = try_to_commit(changes, count);
  if (done || done.error().code() != ENOSPC) return done;
  make_room();
  return try_to_commit(changes, count);
}

Result<void> Store::try_to_commit(const Change* changes, size_t count) {
  Transaction transaction(*this);
  if (auto begun = transaction.begin(); !begun) return begun;
  for (const Change* change = changes; change != changes + count; ++change)
    if (auto made = std::visit([this](const auto& one) { return make(one); }, *change); !made)
      return made;
  if (auto allocated = allocate_pages(); !allocated) return allocated;
  return transaction.commit();
}

bool Store::has_reserve() { return size_of(log_) >= kReserve || allocate(log_, kReserve); }

// Those of the database as it will be after the transaction.
Result<void> Store::allocate_pages() {
  const auto size =
      number_of("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size");
  if (!size) return pass(size.error());
  size_ = static_cast<int64_t>(*size);
  if (size_of(file_) < size_ && !(has_reserve() && allocate(file_, size_))) return disk_full();
  return {};
}

// Copies the log into the database, so that it begins anew, and frees what is above the reserve.
void Store::make_room() {
  ::sqlite3_wal_checkpoint_v2(
      db_, nullptr,
      size_of(log_) > kReserve ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_RESTART, nullptr,
      nullptr);
  (void)has_reserve();
}

Result<void> Store::make(const BudgetSpec& budget) {
  const std::string scope = budget.scope == BudgetSpec::Scope::kParent ? kParent : kTenant;
  Statement forget(*this, "DELETE FROM budget WHERE scope = ? AND name = ?");
  if (auto done = forget.text(scope).text(budget.name).run(); !done) return done;
  Statement add(*this, "INSERT INTO budget VALUES (?, ?, ?)");
  if (auto done = add.text(scope).text(budget.name).number(budget.overcommit).run(); !done)
    return done;
  for (const auto& [what, limits] :
       {std::pair{kDefaults, &budget.defaults}, {kCeilings, &budget.ceilings}})
    for (const auto& limit : *limits) {
      Statement row(*this, "INSERT INTO budget_limit VALUES (?, ?, ?, ?, ?)");
      row.text(scope).text(budget.name).text(what).text(limit.kind).number(limit.limit);
      if (auto done = row.run(); !done) return done;
    }
  return {};
}

Result<void> Store::make(const FabricSpec& fabric) {
  Statement forget(*this, "DELETE FROM fabric WHERE name = ?");
  if (auto done = forget.text(fabric.name).run(); !done || fabric == FabricSpec{fabric.name})
    return done;
  Statement add(*this, "INSERT INTO fabric VALUES (?, ?)");
  if (auto done = add.text(fabric.name).text(text_of(fabric.reach)).run(); !done) return done;
  uint64_t place = 0;
  for (const auto& prefix : fabric.peers) {
    Statement row(*this, "INSERT INTO fabric_peers VALUES (?, ?, ?)");
    if (auto done = row.text(fabric.name).number(place++).text(prefix.text()).run(); !done)
      return done;
  }
  return {};
}

Result<void> Store::make(const StoredVdev& vdev) {
  const VdevSpec& spec = vdev.spec;
  Statement forget(*this, "DELETE FROM vdev WHERE id = ?");
  if (auto done = forget.number(vdev.id).run(); !done) return done;
  Statement add(*this,
                "INSERT INTO vdev (id, name, netns, netdev, parent, tenant, fabric, node_guid,"
                " boot_id, netns_cookie, ifindex, number, no_direct, owner_pid, owner_start,"
                " owner_boot, end_with_owner, gid_layout)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  add.number(vdev.id);
  for (const auto* text :
       {&spec.name, &spec.netns, &spec.netdev, &spec.parent, &spec.tenant, &spec.fabric})
    add.text(*text);
  add.blob(vdev.node_guid.bytes).text(vdev.boot_id).number(vdev.netns_cookie);
  add.number(vdev.ifindex).number(vdev.number).number(spec.no_direct ? 1 : 0);
  add.number(spec.owner.pid).number(spec.owner.start_time).text(spec.owner.boot_id);
  add.number(spec.end_with_owner ? 1 : 0);
  add.text(spec.gid_layout);
  if (auto done = add.run(); !done) return done;
  for (const auto& [sql, settings] :
       {std::pair{"INSERT INTO vdev_quota VALUES (?, ?, ?)", &spec.quota},
        {"INSERT INTO vdev_asked VALUES (?, ?, ?)", &vdev.asked}})
    for (const auto& quota : *settings) {
      Statement row(*this, sql);
      if (auto done = row.number(vdev.id).text(quota.kind).number(quota.limit).run(); !done)
        return done;
    }
  for (const auto& [key, value] : spec.labels) {
    Statement row(*this, "INSERT INTO vdev_label VALUES (?, ?, ?)");
    if (auto done = row.number(vdev.id).text(key).text(value).run(); !done) return done;
  }
  for (size_t place = 0; place < spec.containers.size(); ++place) {
    const Container& container = spec.containers[place];
    Statement row(*this, "INSERT INTO vdev_container VALUES (?, ?, ?, ?, ?, ?)");
    row.number(vdev.id).number(place).text(container.id).number(container.init.pid);
    row.number(container.init.start_time).text(container.init.boot_id);
    if (auto done = row.run(); !done) return done;
  }
  for (const auto& permission : spec.allow) {
    Statement row(*this, "INSERT INTO vdev_permission VALUES (?, ?)");
    if (auto done = row.number(vdev.id).text(permission).run(); !done) return done;
  }
  for (size_t place = 0; place < spec.addresses.size(); ++place) {
    Statement row(*this, "INSERT INTO vdev_prefix VALUES (?, ?, ?)");
    if (auto done = row.number(vdev.id).number(place).text(spec.addresses[place]).run(); !done)
      return done;
  }
  for (const auto& [sql, gids] :
       {std::pair{"INSERT INTO vdev_gid VALUES (?, ?, ?)", &vdev.gids},
        {"INSERT INTO vdev_first VALUES (?, ?, ?)", &vdev.first_addresses}})
    for (size_t place = 0; place < gids->size(); ++place) {
      Statement row(*this, sql);
      if (auto done = row.number(vdev.id).number(place).blob((*gids)[place].bytes).run(); !done)
        return done;
    }
  return {};
}

Result<void> Store::make(const Forgotten& forgotten) {
  Statement statement(*this, "DELETE FROM vdev WHERE id = ?");
  return statement.number(forgotten.id).run();
}

Result<void> Store::make(const Replacement& replacement) {
  for (const uint64_t other : replacement.others)
    if (auto done = make(Forgotten{other}); !done) return done;
  return make(replacement.vdev);
}

Result<void> Store::make(const Reserved& reserved) {
  Statement statement(*this, "UPDATE vdev_id SET reserved = max(reserved, ?)");
  return statement.number(reserved.last).run();
}

Result<Store::Ids> Store::reserve_ids(uint64_t count) {
  uint64_t last = 0;
  {
    Statement statement(*this,
                        "SELECT max(reserved, (SELECT coalesce(max(id), 0) FROM vdev))"
                        " FROM vdev_id");
    auto row = statement.step();
    if (!row) return pass(std::move(row).error());
    if (!*row)
      return fail(EIO, "the state in " + path_ + " is damaged: the counter of ids is missing");
    last = statement.number_at(0);
  }
  const Change change = Reserved{last + count};
  const auto reserved = commit(&change, 1);
  if (!reserved && reserved.error().code() != ENOSPC) return pass(reserved.error());
  return Ids{last + 1, reserved ? count : 0};
}

}  // namespace vrdma::vrdmad
