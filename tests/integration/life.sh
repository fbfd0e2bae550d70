#!/bin/bash
# life.sh direct|mediated: a vdevice lives as long as its netdev in its namespace, and vrdmad keeps
# no namespace alive.
#
#     netns a                 netns b
#   +-----------+           +-----------+
#   | va -- eth0|===========|eth0 -- vb |     va, vb: one tenant (direct), or
#   | 10.0.0.1  |   veth    | 10.0.0.2  |     two tenants in one fabric (mediated)
#   +-----------+           +-----------+
#
# After each kind of end, the vdevice is gone, programs that had it open are notified
# (IBV_EVENT_DEVICE_FATAL), its queues flush, and vrdmad holds nothing of it.
. "$(dirname "$0")/lib.sh"
mode=$1
setup
start_daemon --daemon-grace 0
two_vdevices "$mode"

inode_of() { stat -Lc %i "/run/netns/$(ns "$1")"; }
listed() { [[ $(ctl vdev list -o json) =~ \"name\":\ *\"$1\" ]]; }
not_listed() { ! listed "$1"; }
prints() { grep -qE "$2" "$T/$1.log"; } # NAME PATTERN
netdev_is() { [[ $(ctl vdev list va -o json) =~ \"netdev\":\ *\"$1\" ]]; }
reconnect() { # the veth pair anew, and what stands on it
  join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
  local of_a=(--tenant red) of_b=(--tenant red)
  [[ $mode == direct ]] || of_a=(--tenant red --fabric shared) of_b=(--tenant blue --fabric shared)
  vdev_create va a eth0 "${of_a[@]}" --allow raw-packet
  vdev_create vb b eth0 "${of_b[@]}"
  INDEX_A=$(gid_index a va 10.0.0.1)
  INDEX_B=$(gid_index b vb 10.0.0.2)
}

# Endless traffic, and a program that waits for events of va.
start_traffic() {
  spawn watcher a nobody stdbuf -oL ibv_asyncwatch -d va
  spawn server a nobody ib_send_bw -F -D 300 -d va -x "$INDEX_A"
  wait_until 20 listens server || fail "the server does not listen"
  spawn client b nobody ib_send_bw -F -D 300 -d vb -x "$INDEX_B" 10.0.0.1
  wait_until 20 works vb || fail "the programs do not meet"
  wait_until 20 prints watcher "async event FD" || fail "the watcher does not open va"
}
flushed() { # NAME: ended because of a completion with an error
  reap "$1" 10
  [[ $REAPED -ne 0 ]] || fail "$1 ends as if nothing had happened"
  grep -qiE 'completion with error|failed status|work request flushed|retry counter' "$T/$1.log" ||
    fail "$1 saw no completion with an error"
}
vdevice_ends() { # WHY, as vrdmad says it
  wait_until 5 not_listed va || fail "$1: va is still there"
  grep -q "vdevice $(ns a)/va: $1" "$T/vrdmad.log" || fail "vrdmad does not say that va ended: $1"
  wait_until 5 prints watcher DEVICE_FATAL || fail "$1: the program that has va open is not notified"
  flushed server
  flushed client
  kill -9 "${PID[watcher]}"
  reap watcher 5
}

say "the netdev is renamed: the vdevice follows"
# One after the other: changes that are read at once are one line. With the link, the address of IPv6 comes and goes.
logs() { prints vrdmad "vdevice $(ns a)/va: $1(, addresses changed)?\$"; }
ip_in a link set eth0 down
wait_until 5 logs "link down" || fail "the log does not say that the link goes down"
ip_in a link set eth0 name wire0
wait_until 5 logs "netdev renamed to wire0" || fail "the log does not say that the netdev is renamed"
netdev_is wire0 || fail "va does not follow: $(ctl vdev list va)"
ip_in a link set wire0 up
wait_until 5 logs "link up" || fail "the log does not say that the link comes up"
pair nobody ib_send_bw -F -n 100
ip_in a link set wire0 down
ip_in a link set wire0 name eth0
ip_in a link set eth0 up
wait_until 5 netdev_is eth0 || fail "va does not follow back"

say "a name that is no text: everybody can still be told of all vdevices"
odd=$'e\xff\x1b[2J'
ip_in a link set eth0 down
ip_in a link set eth0 name "$odd"
wait_until 5 netdev_is 'e..xff..x1b.2J' || fail "va does not follow: $(ctl vdev list va)"
[[ $(ctl vdev show va) == *'netdev         e\xff\x1b[2J (index'* ]] || fail "vdev show: $(ctl vdev show va)"
ip_in a link set "$odd" name eth0
ip_in a link set eth0 up
wait_until 5 netdev_is eth0 || fail "va does not follow back"

say "addresses come and go: the GID table follows, and a program bound to a removed address is notified"
has_gid() { [[ $(on a nobody ibv_devinfo -v -d va) == *::ffff:10.0.0.77,* ]]; }
has_no_gid() { ! has_gid; }
ip_in a address add 10.0.0.77/24 dev eth0
wait_until 5 has_gid || fail "the new address is no GID"
rest=$INDEX_A
INDEX_A=$(gid_index a va 10.0.0.77)
start_traffic
ip_in a address del 10.0.0.77/24 dev eth0
wait_until 5 has_no_gid || fail "the address that went is still a GID"
wait_until 5 prints watcher GID_CHANGE || fail "the program that has va open is not notified of the GIDs"
prints vrdmad "vdevice $(ns a)/va: 1 connected queue pairs failed, because their address is gone" ||
  fail "the log does not say that the queue pair failed"
flushed server
flushed client
kill -9 "${PID[watcher]}"
reap watcher 5
INDEX_A=$rest
pair nobody ib_send_bw -F -n 100

say "the netdev is deleted"
start_traffic
ip_in a link delete eth0
vdevice_ends "netdev deleted"
wait_until 5 not_listed vb || fail "the other end of the pair has gone, vb has not"

say "the netdev is moved to another namespace"
reconnect
start_traffic
netns_add c
ip_in a link set eth0 netns "$(ns c)"
vdevice_ends "netdev moved to another netns"
listed vb || fail "vb went too"
ip_in c link delete eth0

say "the namespace is deleted with programs inside: all live on"
wait_until 5 not_listed vb || fail "vb outlives its netdev"
reconnect
inode=$(inode_of a)
cookie=$(cookie_of a)
mac=$(ip_in a -oneline link show eth0 | grep -oP 'link/ether \K\S+')
# A listener by rdma_cm, and a program for which vrdmad holds a packet socket in the namespace.
spawn listener a nobody rping -s -P
wait_until 20 listening va || fail "rping does not listen"
spawn packets a root raw_ethernet_bw --server -F -d va -E "$mac" -B "$mac" -D 300
has_packet_socket() { [[ $(enter_a cat /proc/net/packet | wc -l) -gt 1 ]]; }
enter_a() { nsenter --net="/proc/${PID[listener]}/ns/net" -- "$@"; }
wait_until 20 has_packet_socket || fail "there is no packet socket: $(cat "$T/packets.log")"
ip netns delete "$(ns a)"
unset "NAMESPACES[0]"  # which was a
sleep 0.5
listed va || fail "va went though programs are in its namespace"
[[ $(enter_a env -i "${ENVIRONMENT[@]}" ibv_devinfo -d va) == *PORT_ACTIVE* ]] || fail "va does not work"

say "and vrdmad holds nothing of it: with its last process the namespace is freed"
if find "/proc/$DAEMON/fd" -lname "net:\[$inode\]" | grep .; then fail "vrdmad holds the namespace"; fi
kill -9 "${PID[packets]}" "${PID[listener]}"
reap packets 5
reap listener 5
wait_until 5 not_listed va || fail "va is still there"
grep -qE 'vdevice .*/va: (netns gone|netdev deleted)' "$T/vrdmad.log" || fail "vrdmad does not say why"
pair_gone() { ! ip_in b link show eth0 >/dev/null 2>&1; }
wait_until 5 pair_gone || fail "the namespace is not freed: its end of the veth pair is there"
nsfs_gone() { [[ $(lsns -nt net -o NS) != *$inode* ]]; }
wait_until 5 nsfs_gone || fail "the namespace is still listed"
wait_until 5 not_listed vb || fail "vb outlives its netdev"
[[ ! -e $R/netns/$cookie && ! -e $R/sysfs/$cookie ]] || fail "its directory is left: $(ls "$R"/*/"$cookie")"
