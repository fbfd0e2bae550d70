#!/bin/bash
# devinfo.sh root|nobody: what programs see of their vdevices, and that it follows the netdev.
#
#     netns a                        netns b
#   +-----------------+           +-----------+
#   | va1 -- eth0 ====|== veth ===|eth0 -- vb |
#   | va2 -- eth1     |           +-----------+
#   +-----------------+                netns c: no vdevice
. "$(dirname "$0")/lib.sh"
user=$1
setup
start_daemon
netns_add a b c
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
loose a eth1

# Without a device, and without the kernel's RDMA modules, the system's library returns ENOSYS.
devices() { on "$1" "$user" ibv_devices 2>/dev/null | sed 1,2d | awk '{print $1}' | sort | xargs; }
devices_are() { [[ $(devices "$1") == "$2" ]]; }
info() { on "$1" "$user" ibv_devinfo -v -d "$2"; }
value() { info "$1" "$2" | sed -nE "s/^\s*$3:\s*(.*)/\1/p" | sed -n 1p; }
value_is() { [[ $(value "$1" "$2" "$3") =~ ^$4 ]]; }
gids() { info "$1" "$2" | sed -nE 's/^\s*GID\[.*\]:\s*(.*), .*/\1/p' | sort | xargs; }
gids_are() { [[ $(gids "$1" "$2") == "$(tr ' ' '\n' <<<"$3" | sort | xargs)" ]]; }
expect() { # SECONDS WHAT COMMAND...
  local seconds=$1 what=$2
  shift 2
  wait_until "$seconds" "$@" || { info a va1; fail "$what"; }
}
# The link-local address that the kernel derives from a MAC.
link_local() {
  ip_in "$1" -6 -oneline address show dev "$2" scope link | sed -E 's|.*inet6 ([^/]*)/.*|\1|'
}

devices_are a "" || fail "there are devices before there are vdevices"
vdev_create va1 a eth0 --tenant red --quota qp=7,cq=9
vdev_create va2 a eth1 --tenant red
vdev_create vb b eth0 --tenant red

devices_are a "va1 va2" || fail "in a the devices are: $(devices a)"
devices_are b "vb" || fail "in b the devices are: $(devices b)"
devices_are c "" || fail "in c the devices are: $(devices c)"
if mountpoint -q /; then  # see enter
  ip netns exec "$(ns a)" env -i "${ENVIRONMENT[@]}" ibv_devices | grep -w va1 >/dev/null ||
    fail "a program that ip netns exec starts in a does not see va1"
fi
outside=$(env -i "${ENVIRONMENT[@]}" ibv_devices 2>&1) || true
grep -E 'v(a1|a2|b)\b' <<<"$outside" && fail "the host's netns sees a vdevice"

say "attributes"
expect 2 "state of va1" value_is a va1 state PORT_ACTIVE
expect 0 "quota of qp" value_is a va1 max_qp '7$'
expect 0 "quota of cq" value_is a va1 max_cq '9$'
expect 0 "link layer" value_is a va1 link_layer Ethernet
expect 0 "MTU of eth0" value_is a va1 active_mtu 4096
expect 0 "MTU of eth1" value_is a va2 active_mtu 1024
guids=$(for d in "a va1" "a va2" "b vb"; do value $d node_guid; done)
[[ $(sort -u <<<"$guids" | grep -c .) -eq 3 ]] || fail "node GUIDs are not distinct: $guids"

say "capabilities are those of the soft parent, also where daemon and libraries are not of one age"
while read -r key wanted; do
  expect 0 "${key//_/ }" value_is a va1 "${key//_/[_ ]}" "$wanted\$"
done <<'END'
vendor_id 0x27672
vendor_part_id 1
hw_ver 0x1
page_size_cap 0xfffff000
device_cap_flags 0x01321cc0
max_sge 16
max_qp_rd_atom 128
max_res_rd_atom 896
atomic_cap ATOMIC_HCA \(1\)
max_mcast_grp 8192
max_mcast_qp_attach 1024
local_ca_ack_delay 15
maximum_available_device_memory 262144Bytes
max_mtu 4096 \(5\)
max_msg_sz 0x80000000
port_cap_flags 0x00010000
active_width 8X \(4\)
active_speed 10.0 Gbps \(8\)
END
odp=$(info a va1 | sed -n '/general_odp_caps/,/completion/p' | sed '$d' | xargs)
wanted="general_odp_caps: ODP_SUPPORT ODP_SUPPORT_IMPLICIT
  rc_odp_caps: SUPPORT_SEND SUPPORT_RECV SUPPORT_WRITE SUPPORT_READ SUPPORT_ATOMIC SUPPORT_SRQ
  uc_odp_caps: SUPPORT_SEND SUPPORT_RECV SUPPORT_WRITE SUPPORT_SRQ
  ud_odp_caps: SUPPORT_SEND SUPPORT_RECV SUPPORT_SRQ
  xrc_odp_caps: SUPPORT_SEND SUPPORT_RECV SUPPORT_WRITE SUPPORT_READ SUPPORT_ATOMIC SUPPORT_SRQ"
[[ $odp == "$(xargs <<<"$wanted")" ]] || fail "memory on demand: $odp"

say "GID tables hold their own addresses and no other"
expect 3 "GIDs of va1" gids_are a va1 "$(link_local a eth0) ::ffff:10.0.0.1"
expect 3 "GIDs of vb" gids_are b vb "$(link_local b eth0) ::ffff:10.0.0.2"

say "addresses come and go"
ip_in a address add 10.0.0.77/24 dev eth0
ip_in a address add fd00:77::1/64 dev eth0 nodad
expect 3 "added addresses" gids_are a va1 \
  "$(link_local a eth0) ::ffff:10.0.0.1 ::ffff:10.0.0.77 fd00:77::1"
ip_in a address delete 10.0.0.77/24 dev eth0
ip_in a address delete fd00:77::1/64 dev eth0
expect 3 "deleted addresses" gids_are a va1 "$(link_local a eth0) ::ffff:10.0.0.1"

say "the port follows the link"
ip_in a link set eth1 down
expect 3 "port of a link that is down" value_is a va2 state PORT_DOWN
ip_in a link set eth1 up
expect 3 "port of a link that is up again" value_is a va2 state PORT_ACTIVE

say "vdevices end with their netdev, and by command"
ip_in a link delete eth1
expect 3 "devices once eth1 is deleted" devices_are a va1
ctl vdev delete va1
expect 3 "devices once va1 is deleted" devices_are a ""
devices_are b vb || fail "vb is gone too"
