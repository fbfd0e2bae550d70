#!/bin/bash
# slow_disk.sh LIBRARY: only the operator who changes something waits for the disk.
#
#     netns a
#   +------------+
#   | va -- eth0 |   a disk that blocks while $T/still exists
#   +------------+
. "$(dirname "$0")/lib.sh"
setup
export VRDMA_SLOW_DISK=$T/still
LD_PRELOAD=$1 start_daemon
netns_add a
loose a eth0
ip_in a address add 10.0.0.1/24 dev eth0
vdev_create va a eth0 --addresses 0.0.0.0/0

commits() { ctl stats daemon | awk '$1 == "store_commits" { print $2 }'; }
has_gid() { ctl vdev show va -o json | grep -q ":$1\""; }
exists() { ctl vdev show "$1" >/dev/null 2>&1; }
have_all() { [[ $(ctl vdev list | grep -c '^new') -eq 8 ]]; }

say "the disk stands still: programs, addresses and questions do not"
before=$(commits)
touch "$T/still"
for i in {1..8}; do
  ctl vdev create "new$i" --netns "$(ns a)" --netdev eth0 --fabric "f$i" >/dev/null 2>"$T/new$i.log" &
  PID[new$i]=$!
done
wait_until 20 have_all || fail "8 vdevices are not there: $(cat "$T"/new*.log)"
ip_in a address add 10.0.0.2/24 dev eth0
wait_until 20 has_gid 10.0.0.2 || fail "an address does not become a GID"
LIMIT=20 on a root ibv_devinfo -d va >/dev/null || fail "va cannot be opened"
for i in {1..8}; do
  ended "${PID[new$i]}" && fail "new$i is said to be made, and is not on disk"
done
ctl vdev delete va &
PID[delete]=$!
sleep 0.2
ended "${PID[delete]}" && fail "va is said to be deleted, and is on disk"

say "then all of it is on disk, in a few commits"
rm "$T/still"
for name in new{1..8} delete; do
  wait "${PID[$name]}" || fail "$name: $(<"$T/$name.log")"
  unset "PID[$name]"
done
after=$(commits)
[[ $((after - before)) -le 4 ]] || fail "8 creations and 1 deletion took $((after - before)) commits"
kill_daemon
start_daemon
exists va && fail "va is there again"
for i in {1..8}; do exists "new$i" || fail "new$i is not there after a crash"; done
