// The tables of the operators' configuration, which store.h keeps.
#pragma once

#include <array>

namespace vrdma::vrdmad {

inline constexpr int kApplicationId = 0x7672646d;  // "vrdm", in the file's header

// Step i converts schema i to schema i + 1. Never change a step that was released.
inline constexpr std::array kMigrations{
    "CREATE TABLE vdev (name TEXT PRIMARY KEY, netns TEXT NOT NULL, netdev TEXT NOT NULL,"
    "  parent TEXT NOT NULL, tenant TEXT NOT NULL, fabric TEXT NOT NULL, node_guid BLOB NOT NULL,"
    "  boot_id TEXT NOT NULL, netns_inode INTEGER NOT NULL, ifindex INTEGER NOT NULL);"
    "CREATE TABLE vdev_quota (vdev TEXT NOT NULL REFERENCES vdev ON DELETE CASCADE,"
    "  kind TEXT NOT NULL, value INTEGER NOT NULL, PRIMARY KEY (vdev, kind)) WITHOUT ROWID;"
    "CREATE TABLE vdev_permission (vdev TEXT NOT NULL REFERENCES vdev ON DELETE CASCADE,"
    "  name TEXT NOT NULL, PRIMARY KEY (vdev, name)) WITHOUT ROWID;"
    "CREATE TABLE vdev_gid (vdev TEXT NOT NULL REFERENCES vdev ON DELETE CASCADE,"
    "  place INTEGER NOT NULL, gid BLOB NOT NULL, PRIMARY KEY (vdev, place)) WITHOUT ROWID;",

    "CREATE TABLE budget (scope TEXT NOT NULL, name TEXT NOT NULL, overcommit INTEGER NOT NULL,"
    "  PRIMARY KEY (scope, name)) WITHOUT ROWID;"
    "CREATE TABLE budget_limit (scope TEXT NOT NULL, name TEXT NOT NULL, what TEXT NOT NULL,"
    "  kind TEXT NOT NULL, value INTEGER NOT NULL, PRIMARY KEY (scope, name, what, kind),"
    "  FOREIGN KEY (scope, name) REFERENCES budget ON DELETE CASCADE) WITHOUT ROWID;",

    // An inode number does not identify a namespace: treat the stored vdevices as after a reboot.
    "ALTER TABLE vdev RENAME COLUMN netns_inode TO netns_cookie;"
    "ALTER TABLE vdev ADD COLUMN number INTEGER NOT NULL DEFAULT 0;"
    "UPDATE vdev SET netns_cookie = 0, boot_id = 'unknown';",

    // Vdevices without a named tenant all shared the tenant 'default'.
    "ALTER TABLE vdev ADD COLUMN no_direct INTEGER NOT NULL DEFAULT 0;"
    "UPDATE vdev SET tenant = '' WHERE tenant = 'default';",

    // The GIDs that exist now count as those that the netdev had when the vdevice was created.
    "CREATE TABLE vdev_prefix (vdev TEXT NOT NULL REFERENCES vdev ON DELETE CASCADE,"
    "  place INTEGER NOT NULL, prefix TEXT NOT NULL, PRIMARY KEY (vdev, place)) WITHOUT ROWID;"
    "CREATE TABLE vdev_first (vdev TEXT NOT NULL REFERENCES vdev ON DELETE CASCADE,"
    "  place INTEGER NOT NULL, address BLOB NOT NULL, PRIMARY KEY (vdev, place)) WITHOUT ROWID;"
    "INSERT INTO vdev_first SELECT vdev, place, gid FROM vdev_gid;",

    // A name is unique in its namespace only. Existing vdevices get ids in the order of their
    // names. The quota of their create requests is unknown.
    "CREATE TABLE vdev_id (one INTEGER PRIMARY KEY CHECK (one = 1), reserved INTEGER NOT NULL);"
    "CREATE TABLE new_vdev (id INTEGER PRIMARY KEY, name TEXT NOT NULL, netns TEXT NOT NULL,"
    "  netdev TEXT NOT NULL, parent TEXT NOT NULL, tenant TEXT NOT NULL, fabric TEXT NOT NULL,"
    "  node_guid BLOB NOT NULL, boot_id TEXT NOT NULL, netns_cookie INTEGER NOT NULL,"
    "  ifindex INTEGER NOT NULL, number INTEGER NOT NULL, no_direct INTEGER NOT NULL,"
    "  owner_pid INTEGER NOT NULL DEFAULT 0, owner_start INTEGER NOT NULL DEFAULT 0,"
    "  owner_boot TEXT NOT NULL DEFAULT '', end_with_owner INTEGER NOT NULL DEFAULT 0);"
    "INSERT INTO new_vdev (id, name, netns, netdev, parent, tenant, fabric, node_guid, boot_id,"
    "    netns_cookie, ifindex, number, no_direct)"
    "  SELECT row_number() OVER (ORDER BY name), name, netns, netdev, parent, tenant, fabric,"
    "    node_guid, boot_id, netns_cookie, ifindex, number, no_direct FROM vdev;"
    "INSERT INTO vdev_id SELECT 1, count(*) FROM new_vdev;"
    "CREATE TABLE new_quota (vdev INTEGER NOT NULL REFERENCES new_vdev ON DELETE CASCADE,"
    "  kind TEXT NOT NULL, value INTEGER NOT NULL, PRIMARY KEY (vdev, kind)) WITHOUT ROWID;"
    "INSERT INTO new_quota SELECT id, kind, value FROM vdev_quota JOIN new_vdev ON vdev = name;"
    "CREATE TABLE new_permission (vdev INTEGER NOT NULL REFERENCES new_vdev ON DELETE CASCADE,"
    "  name TEXT NOT NULL, PRIMARY KEY (vdev, name)) WITHOUT ROWID;"
    "INSERT INTO new_permission SELECT id, p.name FROM vdev_permission p"
    "  JOIN new_vdev v ON p.vdev = v.name;"
    "CREATE TABLE new_gid (vdev INTEGER NOT NULL REFERENCES new_vdev ON DELETE CASCADE,"
    "  place INTEGER NOT NULL, gid BLOB NOT NULL, PRIMARY KEY (vdev, place)) WITHOUT ROWID;"
    "INSERT INTO new_gid SELECT id, place, gid FROM vdev_gid JOIN new_vdev ON vdev = name;"
    "CREATE TABLE new_prefix (vdev INTEGER NOT NULL REFERENCES new_vdev ON DELETE CASCADE,"
    "  place INTEGER NOT NULL, prefix TEXT NOT NULL, PRIMARY KEY (vdev, place)) WITHOUT ROWID;"
    "INSERT INTO new_prefix SELECT id, place, prefix FROM vdev_prefix JOIN new_vdev ON vdev = name;"
    "CREATE TABLE new_first (vdev INTEGER NOT NULL REFERENCES new_vdev ON DELETE CASCADE,"
    "  place INTEGER NOT NULL, address BLOB NOT NULL, PRIMARY KEY (vdev, place)) WITHOUT ROWID;"
    "INSERT INTO new_first SELECT id, place, address FROM vdev_first JOIN new_vdev ON vdev = name;"
    "DROP TABLE vdev_quota; DROP TABLE vdev_permission; DROP TABLE vdev_gid;"
    "DROP TABLE vdev_prefix; DROP TABLE vdev_first; DROP TABLE vdev;"
    "ALTER TABLE new_vdev RENAME TO vdev; ALTER TABLE new_quota RENAME TO vdev_quota;"
    "ALTER TABLE new_permission RENAME TO vdev_permission; ALTER TABLE new_gid RENAME TO vdev_gid;"
    "ALTER TABLE new_prefix RENAME TO vdev_prefix; ALTER TABLE new_first RENAME TO vdev_first;"
    "CREATE TABLE vdev_asked (vdev INTEGER NOT NULL REFERENCES vdev ON DELETE CASCADE,"
    "  kind TEXT NOT NULL, value INTEGER NOT NULL, PRIMARY KEY (vdev, kind)) WITHOUT ROWID;"
    "CREATE TABLE vdev_label (vdev INTEGER NOT NULL REFERENCES vdev ON DELETE CASCADE,"
    "  key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (vdev, key)) WITHOUT ROWID;",
    "ALTER TABLE vdev ADD COLUMN gid_layout TEXT NOT NULL DEFAULT 'dense';",

    "CREATE TABLE vdev_container (vdev INTEGER NOT NULL REFERENCES vdev ON DELETE CASCADE,"
    "  place INTEGER NOT NULL, id TEXT NOT NULL, pid INTEGER NOT NULL, start INTEGER NOT NULL,"
    "  boot TEXT NOT NULL, PRIMARY KEY (vdev, place)) WITHOUT ROWID;",

    "CREATE TABLE fabric (name TEXT PRIMARY KEY, reach TEXT NOT NULL) WITHOUT ROWID;",

    "CREATE TABLE fabric_peers (fabric TEXT NOT NULL REFERENCES fabric ON DELETE CASCADE,"
    "  place INTEGER NOT NULL, prefix TEXT NOT NULL, PRIMARY KEY (fabric, place)) WITHOUT ROWID;",

    "CREATE TABLE claim (uid TEXT PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL)"
    "  WITHOUT ROWID;"
    "CREATE TABLE claim_share (claim TEXT NOT NULL REFERENCES claim ON DELETE CASCADE,"
    "  id TEXT NOT NULL, class TEXT NOT NULL, PRIMARY KEY (claim, id)) WITHOUT ROWID;"
    "CREATE TABLE claim_quota (claim TEXT NOT NULL, share TEXT NOT NULL, kind TEXT NOT NULL,"
    "  value INTEGER NOT NULL, PRIMARY KEY (claim, share, kind),"
    "  FOREIGN KEY (claim, share) REFERENCES claim_share ON DELETE CASCADE) WITHOUT ROWID;"
    "CREATE TABLE claim_label (claim TEXT NOT NULL REFERENCES claim ON DELETE CASCADE,"
    "  key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (claim, key)) WITHOUT ROWID;",
};

}  // namespace vrdma::vrdmad
