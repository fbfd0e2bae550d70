#include "vrdmad/control/store.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/vrdmad/admin/fixture.h"
#include "vrdmad/control/store_thread.h"

namespace vrdma::vrdmad {
namespace {

namespace fs = std::filesystem;

StoredVdev red() {
  StoredVdev vdev;
  vdev.id = 41;
  vdev.asked = {{"qp", 7}};
  vdev.spec.owner = {4711, 99, "b"};
  vdev.spec.end_with_owner = true;
  vdev.spec.containers = {{"c0ffee", {12, 13, "b"}}, {"beef", {7, 8, "b"}}};
  vdev.spec.labels = {{"container", "c0ffee"}, {"pod", "red-0"}};
  vdev.spec.name = "red0";
  vdev.spec.netns = "red";
  vdev.spec.netdev = "eth0";
  vdev.spec.tenant = "shop";
  vdev.spec.fabric = "f";
  vdev.spec.quota = {{"mr_bytes", UINT64_MAX}, {"qp", 7}};
  vdev.spec.allow = {"raw-packet"};
  vdev.spec.no_direct = true;
  vdev.spec.gid_layout = "mlx5";
  vdev.node_guid.bytes = {2, 1, 2, 3, 4, 5, 6, 7};
  vdev.boot_id = "b";
  vdev.netns_cookie = 4026532000;
  vdev.ifindex = 5;
  vdev.number = 3;
  vdev.gids.resize(3);
  vdev.gids[0].bytes[15] = 9;
  vdev.gids[1].bytes[15] = 1;
  vdev.gids[2].bytes[15] = 4;
  vdev.first_addresses = {vdev.gids[1]};
  vdev.spec.addresses = {"10.0.0.0/24", "fd00::/64"};
  return vdev;
}

void expect_red(const StoredVdev& vdev) {
  const StoredVdev wanted = red();
  EXPECT_EQ(vdev, wanted);
  EXPECT_EQ(vdev.spec.name, "red0");
  EXPECT_EQ(vdev.spec.netns, "red");
  EXPECT_EQ(vdev.spec.netdev, "eth0");
  EXPECT_EQ(vdev.spec.parent, "soft");
  EXPECT_EQ(vdev.spec.tenant, "shop");
  EXPECT_EQ(vdev.spec.fabric, "f");
  ASSERT_EQ(vdev.spec.quota.size(), 2U);
  EXPECT_EQ(vdev.spec.quota[0].kind, "mr_bytes");
  EXPECT_EQ(vdev.spec.quota[0].limit, UINT64_MAX);
  EXPECT_EQ(vdev.spec.allow, wanted.spec.allow);
  EXPECT_TRUE(vdev.spec.no_direct);
  EXPECT_EQ(vdev.spec.gid_layout, "mlx5");
  EXPECT_EQ(vdev.node_guid, wanted.node_guid);
  EXPECT_EQ(vdev.boot_id, "b");
  EXPECT_EQ(vdev.netns_cookie, wanted.netns_cookie);
  EXPECT_EQ(vdev.ifindex, 5U);
  EXPECT_EQ(vdev.number, 3U);
  EXPECT_EQ(vdev.gids, wanted.gids);
  EXPECT_EQ(vdev.first_addresses, wanted.first_addresses);
  EXPECT_EQ(vdev.spec.addresses, wanted.spec.addresses);
}

std::unique_ptr<Store> opened(const std::string& dir) {
  auto store = Store::open(dir);
  EXPECT_TRUE(store) << store.error().message();
  return store ? std::move(*store) : nullptr;
}

base::Result<void> put(Store& store, const Store::Change& change) {
  return std::move(store.write({change}).front());
}
base::Result<void> forget(Store& store, uint64_t id) { return put(store, Store::Forgotten{id}); }

// The error of Store::open for a file that `sql` has changed.
base::Error error_after(const TempDir& temp, const char* sql) {
  sqlite3* db = nullptr;
  EXPECT_EQ(::sqlite3_open((temp.path() + "/state.db").c_str(), &db), SQLITE_OK);
  EXPECT_EQ(::sqlite3_exec(db, sql, nullptr, nullptr, nullptr), SQLITE_OK);
  ::sqlite3_close(db);
  auto store = Store::open(temp.path());
  EXPECT_FALSE(store);
  return store ? base::Error(0, "") : store.error();
}

TEST(Store, keeps_all_of_a_vdevice) {
  const TempDir temp;
  {
    const auto store = opened(temp.path());
    ASSERT_TRUE(put(*store, red()));
  }
  const auto store = opened(temp.path());
  const auto vdevs = store->vdevs();
  ASSERT_TRUE(vdevs) << vdevs.error().message();
  ASSERT_EQ(vdevs->size(), 1U);
  expect_red(vdevs->front());
  struct stat status {};
  ASSERT_EQ(::stat(temp.path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0700U);
}

TEST(Store, what_is_put_again_replaces_and_what_is_erased_is_gone) {
  const TempDir temp;
  const auto store = opened(temp.path());
  ASSERT_TRUE(put(*store, red()));
  StoredVdev changed = red();
  changed.spec.quota = {{"qp", 9}};
  changed.gids.pop_back();
  ASSERT_TRUE(put(*store, changed));
  auto vdevs = store->vdevs();
  ASSERT_TRUE(vdevs);
  ASSERT_EQ(vdevs->size(), 1U);
  ASSERT_EQ(vdevs->front().spec.quota.size(), 1U);
  EXPECT_EQ(vdevs->front().spec.quota[0].limit, 9U);
  EXPECT_EQ(vdevs->front().gids, changed.gids);
  EXPECT_TRUE(forget(*store, 40));
  ASSERT_TRUE(forget(*store, 41));
  ASSERT_TRUE(put(*store, red())) << "the old one is removed completely";
  ASSERT_TRUE(forget(*store, 41));
  vdevs = store->vdevs();
  ASSERT_TRUE(vdevs);
  EXPECT_TRUE(vdevs->empty());
}

TEST(Store, a_change_that_fails_leaves_all_as_it_was) {
  const TempDir temp;
  const auto store = opened(temp.path());
  ASSERT_TRUE(put(*store, red()));
  StoredVdev twice = red();
  twice.spec.netdev = "eth1";
  twice.spec.quota = {{"qp", 9}, {"qp", 10}};  // a kind occurs once
  EXPECT_FALSE(put(*store, twice));
  const auto vdevs = store->vdevs();
  ASSERT_TRUE(vdevs);
  ASSERT_EQ(vdevs->size(), 1U);
  expect_red(vdevs->front());
  EXPECT_TRUE(put(*store, red())) << "no transaction is left open";
}

TEST(Store, of_several_changes_the_one_that_cannot_be_made_fails_alone) {
  const TempDir temp;
  const auto store = opened(temp.path());
  StoredVdev twice = red(), other = red();
  twice.id = 42;
  twice.spec.quota = {{"qp", 9}, {"qp", 10}};
  other.id = 43;
  other.spec.name = "other0";
  const auto results = store->write({red(), twice, other, Store::Forgotten{41}});
  ASSERT_EQ(results.size(), 4U);
  EXPECT_TRUE(results[0]);
  EXPECT_FALSE(results[1]);
  EXPECT_TRUE(results[2]);
  EXPECT_TRUE(results[3]);
  const auto vdevs = store->vdevs();
  ASSERT_TRUE(vdevs);
  ASSERT_EQ(vdevs->size(), 1U);
  EXPECT_EQ(vdevs->front().spec.name, "other0");
}

TEST(StoreThread, what_comes_while_the_disk_is_busy_shares_a_commit) {
  constexpr int kVdevices = 200;
  const TempDir temp;
  {
    const auto store = opened(temp.path());
    const uint64_t before = store->commits();
    StoreThread thread(*store);
    std::vector<std::future<base::Result<void>>> written;
    for (int i = 0; i < kVdevices; ++i) {
      StoredVdev vdev = red();
      vdev.id = static_cast<uint64_t>(i) + 1;
      written.push_back(thread.write(vdev));
    }
    for (auto& one : written) EXPECT_TRUE(one.get());
    EXPECT_LT(store->commits() - before, kVdevices);
  }
  const auto vdevs = opened(temp.path())->vdevs();
  ASSERT_TRUE(vdevs);
  EXPECT_EQ(vdevs->size(), kVdevices);
}

TEST(StoreThread, what_nobody_waits_for_is_written_once_and_before_the_end) {
  const TempDir temp;
  const auto store = opened(temp.path());
  const uint64_t before = store->commits();
  {
    StoreThread thread(*store);
    ASSERT_TRUE(thread.write(red()).get());
    for (uint32_t ifindex = 1; ifindex <= 50; ++ifindex) {
      StoredVdev vdev = red();
      vdev.ifindex = ifindex;
      thread.write_later(vdev);
    }
    StoredVdev other = red();
    other.id = 42;
    thread.write_later(other);
    thread.write_later(Store::Reserved{1000});
    ASSERT_TRUE(thread.write(Store::Forgotten{42}).get())
        << "and the late change does not recreate it";
  }
  EXPECT_LE(store->commits() - before, 3U);
  const auto vdevs = store->vdevs();
  ASSERT_TRUE(vdevs);
  ASSERT_EQ(vdevs->size(), 1U);
  EXPECT_EQ(vdevs->front().ifindex, 50U);
  EXPECT_EQ(store->reserve_ids(1)->first, 1001U);
}

TEST(Store, an_id_is_taken_once_whatever_happens) {
  const TempDir temp;
  {
    const auto store = opened(temp.path());
    EXPECT_EQ(store->reserve_ids(1000)->first, 1U);
    ASSERT_TRUE(put(*store, red()));
    ASSERT_TRUE(put(*store, Store::Reserved{3000}));
    ASSERT_TRUE(put(*store, Store::Reserved{2000})) << "together with a late change";
    ASSERT_TRUE(forget(*store, 41));
  }
  const auto store = opened(temp.path());
  EXPECT_EQ(store->reserve_ids(1000)->first, 3001U);
  EXPECT_EQ(store->reserve_ids(1000)->first, 4001U);
}

TEST(Store, an_id_that_is_stored_is_taken) {
  const TempDir temp;
  const auto store = opened(temp.path());
  ASSERT_TRUE(put(*store, red()));
  EXPECT_EQ(store->reserve_ids(10)->first, 42U) << "although no id was reserved";
}

// What it needs on a full disk: see tests/integration/full_disk.sh.
TEST(Store, keeps_room_for_its_log_and_all_of_its_pages) {
  const TempDir temp;
  const std::string path = temp.path() + "/state.db";
  for (uint64_t id = 1; id <= 3; ++id) {
    const auto store = opened(temp.path());
    EXPECT_GE(fs::file_size(path + "-wal"), uint64_t{Store::kReserve});
    const uint64_t before = fs::file_size(path);
    for (uint64_t i = 0; i < 100; ++i) {
      StoredVdev vdev = red();
      vdev.id = 100 * id + i;
      ASSERT_TRUE(put(*store, vdev));
    }
    EXPECT_GT(fs::file_size(path), before) << "although they are in the log";
  }
  EXPECT_EQ(fs::file_size(path + "-wal"), uint64_t{Store::kReserve});
  std::ifstream log(path + "-wal", std::ios::binary);
  EXPECT_EQ(log.get(), 0) << "no changes are left in it, which a copy of state.db would not have";
  EXPECT_EQ(opened(temp.path())->vdevs()->size(), 300U);
}

TEST(Store, names_are_unique_nowhere_and_ids_everywhere) {
  const TempDir temp;
  const auto store = opened(temp.path());
  StoredVdev other = red();
  other.id = 42;
  other.spec.netns = "blue";
  ASSERT_TRUE(put(*store, red()));
  ASSERT_TRUE(put(*store, other));
  auto vdevs = store->vdevs();
  ASSERT_TRUE(vdevs);
  ASSERT_EQ(vdevs->size(), 2U);
  expect_red(vdevs->front());
  EXPECT_EQ(vdevs->back(), other);
  StoredVdev heir = red();
  heir.id = 43;
  ASSERT_TRUE(put(*store, Store::Replacement{heir, {41, 42}}));
  vdevs = store->vdevs();
  ASSERT_TRUE(vdevs);
  ASSERT_EQ(vdevs->size(), 1U);
  EXPECT_EQ(vdevs->front(), heir);
  heir.id = 44;
  heir.spec.quota = {{"qp", 9}, {"qp", 10}};
  EXPECT_FALSE(put(*store, Store::Replacement{heir, {43}}));
  EXPECT_EQ(store->vdevs()->front().id, 43U) << "the vdevices to be replaced remain";
}

TEST(Store, belongs_to_one_daemon) {
  const TempDir temp;
  const auto store = opened(temp.path());
  const auto second = Store::open(temp.path());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), EBUSY);
  EXPECT_NE(second.error().message().find("another vrdmad"), std::string::npos);
}

TEST(Store, keeps_what_tenants_and_parents_have) {
  const TempDir temp;
  BudgetSpec red{BudgetSpec::Scope::kTenant, "red", {{"qp", 8}}, {{"mr", 9}, {"qp", 64}}, 150};
  {
    const auto store = opened(temp.path());
    ASSERT_TRUE(put(*store, BudgetSpec{BudgetSpec::Scope::kParent, "red", {}, {{"qp", 1}}, 100}));
    ASSERT_TRUE(put(*store, BudgetSpec{BudgetSpec::Scope::kTenant, "red", {{"cq", 1}}, {}, 100}));
    ASSERT_TRUE(put(*store, red));
  }
  const auto store = opened(temp.path());
  const auto budgets = store->budgets();
  ASSERT_TRUE(budgets) << budgets.error().message();
  ASSERT_EQ(budgets->size(), 2U);
  EXPECT_EQ((*budgets)[0].scope, BudgetSpec::Scope::kParent);
  EXPECT_EQ((*budgets)[0].ceilings, (std::vector<QuotaSetting>{{"qp", 1}}));
  EXPECT_EQ((*budgets)[1].scope, BudgetSpec::Scope::kTenant);
  EXPECT_EQ((*budgets)[1].name, "red");
  EXPECT_EQ((*budgets)[1].defaults, red.defaults);
  EXPECT_EQ((*budgets)[1].ceilings, red.ceilings);
  EXPECT_EQ((*budgets)[1].overcommit, 150U);
}

TEST(Store, keeps_the_fabrics_that_have_settings) {
  const TempDir temp;
  const auto peers = gid::parse_prefixes({"fd00::/64", "10.0.0.0/8"}).value();
  {
    const auto store = opened(temp.path());
    ASSERT_TRUE(put(*store, FabricSpec{"tenant/red", Reach::kNetwork}));
    ASSERT_TRUE(put(*store, FabricSpec{"far", Reach::kNetwork}));
    ASSERT_TRUE(put(*store, FabricSpec{"far", Reach::kNetwork})) << "once more";
    ASSERT_TRUE(put(*store, FabricSpec{"near", Reach::kNetwork}));
    ASSERT_TRUE(put(*store, FabricSpec{"near", Reach::kHost}));
    ASSERT_TRUE(put(*store, FabricSpec{"unheard", Reach::kHost}));
    ASSERT_TRUE(put(*store, FabricSpec{"wired", Reach::kWire}));
    ASSERT_TRUE(put(*store, FabricSpec{"choosy", Reach::kHost, peers}));
    ASSERT_TRUE(put(*store, FabricSpec{"wired", Reach::kWire, peers}));
  }
  const auto store = opened(temp.path());
  const auto fabrics = store->fabrics();
  ASSERT_TRUE(fabrics) << fabrics.error().message();
  EXPECT_EQ(*fabrics, (std::vector<FabricSpec>{{"choosy", Reach::kHost, peers},
                                               {"far", Reach::kNetwork},
                                               {"tenant/red", Reach::kNetwork},
                                               {"wired", Reach::kWire, peers}}));
}

// A name becomes the name of a file.
TEST(Store, a_name_that_nobody_could_give_is_damage) {
  const TempDir temp;
  StoredVdev bad = red();
  bad.spec.name = "../x";
  ASSERT_TRUE(put(*opened(temp.path()), bad));
  const auto vdevs = opened(temp.path())->vdevs();
  ASSERT_FALSE(vdevs);
  EXPECT_EQ(vdevs.error().code(), EIO);
  EXPECT_NE(vdevs.error().message().find("damaged: the vdevice '../x' is not a valid name"),
            std::string::npos)
      << vdevs.error().message();
}

TEST(Store, a_reach_that_it_does_not_know_is_damage) {
  const TempDir temp;
  opened(temp.path()).reset();
  sqlite3* db = nullptr;
  ASSERT_EQ(::sqlite3_open((temp.path() + "/state.db").c_str(), &db), SQLITE_OK);
  EXPECT_EQ(
      ::sqlite3_exec(db, "INSERT INTO fabric VALUES ('far', 'moon')", nullptr, nullptr, nullptr),
      SQLITE_OK);
  ::sqlite3_close(db);
  const auto fabrics = opened(temp.path())->fabrics();
  ASSERT_FALSE(fabrics);
  EXPECT_EQ(fabrics.error().code(), EIO);
  EXPECT_NE(fabrics.error().message().find("fabric 'far' has the reach 'moon'"), std::string::npos)
      << fabrics.error().message();
}

// A namespace that was identified by its inode is searched for by name, as after a reboot.
TEST(Store, reads_the_form_that_knew_namespaces_by_inode) {
  const TempDir temp;
  sqlite3* db = nullptr;
  ASSERT_EQ(::sqlite3_open((temp.path() + "/state.db").c_str(), &db), SQLITE_OK);
  const char* const kFormOfTwo =
      "CREATE TABLE vdev (name TEXT PRIMARY KEY, netns TEXT NOT NULL, netdev TEXT NOT NULL,"
      "  parent TEXT NOT NULL, tenant TEXT NOT NULL, fabric TEXT NOT NULL,"
      "  node_guid BLOB NOT NULL, boot_id TEXT NOT NULL, netns_inode INTEGER NOT NULL,"
      "  ifindex INTEGER NOT NULL);"
      "CREATE TABLE vdev_quota (vdev TEXT NOT NULL REFERENCES vdev ON DELETE CASCADE,"
      "  kind TEXT NOT NULL, value INTEGER NOT NULL, PRIMARY KEY (vdev, kind)) WITHOUT ROWID;"
      "CREATE TABLE vdev_permission (vdev TEXT NOT NULL REFERENCES vdev ON DELETE CASCADE,"
      "  name TEXT NOT NULL, PRIMARY KEY (vdev, name)) WITHOUT ROWID;"
      "CREATE TABLE vdev_gid (vdev TEXT NOT NULL REFERENCES vdev ON DELETE CASCADE,"
      "  place INTEGER NOT NULL, gid BLOB NOT NULL, PRIMARY KEY (vdev, place)) WITHOUT ROWID;"
      "CREATE TABLE budget (scope TEXT NOT NULL, name TEXT NOT NULL, overcommit INTEGER NOT NULL,"
      "  PRIMARY KEY (scope, name)) WITHOUT ROWID;"
      "CREATE TABLE budget_limit (scope TEXT NOT NULL, name TEXT NOT NULL, what TEXT NOT NULL,"
      "  kind TEXT NOT NULL, value INTEGER NOT NULL, PRIMARY KEY (scope, name, what, kind),"
      "  FOREIGN KEY (scope, name) REFERENCES budget ON DELETE CASCADE) WITHOUT ROWID;"
      "INSERT INTO vdev VALUES ('red0', 'red', 'eth0', 'soft', 'shop', 'f', x'0201020304050607',"
      "  'b', 4026532000, 5);"
      "INSERT INTO vdev VALUES ('web0', 'web', 'eth0', 'soft', 'default', '',"
      "  x'0201020304050608', 'b', 4026532001, 6);"
      "INSERT INTO vdev_quota VALUES ('red0', 'qp', 7);"
      "INSERT INTO vdev_quota VALUES ('web0', 'qp', 8);"
      "INSERT INTO vdev_permission VALUES ('web0', 'raw-packet');"
      "INSERT INTO vdev_gid VALUES ('web0', 0, zeroblob(16));"
      "PRAGMA application_id=1987208301; PRAGMA user_version=2";
  EXPECT_EQ(::sqlite3_exec(db, kFormOfTwo, nullptr, nullptr, nullptr), SQLITE_OK)
      << ::sqlite3_errmsg(db);
  ::sqlite3_close(db);
  const auto store = opened(temp.path());
  ASSERT_NE(store, nullptr);
  const auto vdevs = store->vdevs();
  ASSERT_TRUE(vdevs) << vdevs.error().message();
  ASSERT_EQ(vdevs->size(), 2U);
  EXPECT_EQ(vdevs->back().spec.tenant, "") << "a vdevice without a tenant shares none";
  const StoredVdev& vdev = vdevs->front();
  EXPECT_EQ(vdev.spec.tenant, "shop");
  EXPECT_FALSE(vdev.spec.no_direct);
  EXPECT_EQ(vdev.spec.gid_layout, "dense");
  EXPECT_EQ(vdev.spec.name, "red0");
  EXPECT_EQ(vdev.spec.netns, "red");
  EXPECT_EQ(vdev.ifindex, 5U);
  EXPECT_EQ(vdev.netns_cookie, 0U);
  EXPECT_NE(vdev.boot_id, "b") << "the namespace may be another one";
  EXPECT_EQ(vdev.spec.quota, (std::vector<QuotaSetting>{{"qp", 7}}));
  EXPECT_EQ(vdev.id, 1U);
  EXPECT_EQ(vdev.spec.owner.pid, 0U);
  const StoredVdev& web = vdevs->back();
  EXPECT_EQ(web.id, 2U);
  EXPECT_EQ(web.spec.quota, (std::vector<QuotaSetting>{{"qp", 8}}));
  EXPECT_EQ(web.spec.allow, (std::vector<std::string>{"raw-packet"}));
  EXPECT_EQ(web.gids.size(), 1U);
  EXPECT_EQ(web.first_addresses.size(), 1U);
  EXPECT_EQ(store->reserve_ids(10)->first, 3U) << "those ids are in use";
  EXPECT_TRUE(put(*store, red()));
  EXPECT_TRUE(forget(*store, 2));
  EXPECT_EQ(store->vdevs()->size(), 2U);
  EXPECT_TRUE(store->fabrics().value().empty());
  EXPECT_TRUE(put(*store, FabricSpec{"f", Reach::kNetwork}));
}

TEST(Store, refuses_a_newer_form) {
  const TempDir temp;
  opened(temp.path()).reset();
  const auto error = error_after(temp, "PRAGMA user_version=9999");
  EXPECT_EQ(error.code(), EINVAL);
  EXPECT_NE(error.message().find("newer vrdmad"), std::string::npos) << error.message();
}

TEST(Store, refuses_what_is_no_database_of_its_own) {
  const TempDir temp;
  const auto other = error_after(temp, "CREATE TABLE cake (flour INTEGER)");
  EXPECT_NE(other.message().find("another program"), std::string::npos) << other.message();
  fs::remove(temp.path() + "/state.db");
  std::ofstream(temp.path() + "/state.db") << std::string(8192, 'x');
  const auto garbage = Store::open(temp.path());
  ASSERT_FALSE(garbage);
  EXPECT_NE(garbage.error().message().find("damaged"), std::string::npos);
  EXPECT_EQ(garbage.error().message().find('\n'), std::string::npos);
  std::ifstream file(temp.path() + "/state.db");
  EXPECT_EQ(file.get(), 'x') << "the file is unchanged";
}

TEST(Store, finds_damage_in_the_middle) {
  const TempDir temp;
  {
    const auto store = opened(temp.path());
    for (int i = 0; i < 200; ++i) {
      StoredVdev vdev = red();
      vdev.id = static_cast<uint64_t>(i) + 1;
      ASSERT_TRUE(put(*store, vdev));
    }
  }
  const std::string path = temp.path() + "/state.db";
  const auto size = fs::file_size(path);
  ASSERT_GT(size, 4 * 4096U);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  for (std::streamoff page = 1; page * 4096 < static_cast<std::streamoff>(size); ++page) {
    file.seekp(page * 4096);
    file << std::string(64, '\xee');
  }
  file.close();
  const auto store = Store::open(temp.path());
  ASSERT_FALSE(store);
  EXPECT_NE(store.error().message().find("damaged"), std::string::npos) << store.error().message();
}

}  // namespace
}  // namespace vrdma::vrdmad
