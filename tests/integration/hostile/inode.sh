#!/bin/bash
# inode.sh: a namespace that reuses the inode number of an ended one, with an interface of the same
# name and index, never gets its vdevice, neither at the daemon's start nor later.
#
#     netns b (ends)        a namespace of uid 65534, with the same inode number
#   +-----------------+    +------------------------------------------+
#   | vb (blue) -- eb |    | eb, 203.0.113.9, of the same index       |
#   +-----------------+    +------------------------------------------+
. "$(dirname "$0")/../lib.sh"
setup
start_daemon
cat >"$T/capture.sh" <<'SH'
# inode index ready flag: when the file `ready` exists, creates namespaces until one has the number,
# and stays in it. Its user namespace exists before, so that it does not take the number.
while [ ! -e "$3" ]; do sleep 0.05; done
for _ in $(seq 100); do
  unshare -n sh -c '
    [ "$(stat -Lc %i /proc/self/ns/net)" = "$1" ] || exit 1
    ip link add eb index "$2" type veth peer name ex index $(($2 + 1)) &&
      ip address add 203.0.113.9/24 dev eb && ip link set eb up && ip link set ex up || exit 1
    echo "$$" >"$4"
    exec sleep 600' sh "$@" && exit
  sleep 0.02
done
SH
chmod 755 "$T/capture.sh"
mkdir -m 777 "$T/flags"

# The number is free soon after the namespace has ended, and the kernel assigns the lowest free
# number, also to other tests, so the test tries several victims.
capture() { # NAMESPACE VDEVICE: true if the attacker has the number that the namespace had
  local was index flag=$T/flags/$1
  netns_add "$1"
  loose "$1" eb
  ip_in "$1" address add 203.0.113.7/24 dev eb
  vdev_create "$2" "$1" eb --tenant blue --fabric f
  was=$(stat -Lc %i "/run/netns/$(ns "$1")")
  index=$(ip_in "$1" -oneline link show eb | cut -d: -f1)
  setpriv --reuid 65534 --regid 65534 --clear-groups unshare -Ur \
    sh "$T/capture.sh" "$was" "$index" "$flag.ready" "$flag" >"$T/capture.log" 2>&1 &
  PID[attacker]=$!
  kill_daemon
  ip netns delete "$(ns "$1")"
  unset 'NAMESPACES[-1]'
  wait_until 5 freed "$was" || return 1
  touch "$flag.ready"
  wait_until 20 settled "$flag"
  [[ -s $flag ]]
}
freed() { [[ $(lsns -nt net -o NS) != *$1* ]] && sleep 0.3; }
settled() { [[ -s $1 ]] || ended "${PID[attacker]}"; }

say "an attacker takes the number"
captured=
for n in b c d e; do
  [[ -n $DAEMON ]] || start_daemon
  if capture "$n" "v$n"; then captured=$n; break; fi
done
[[ -n $captured ]] || skip "other namespaces get the number first"

PID[inside]=$(<"$T/flags/$captured")

say "and the daemon starts while the name of v$captured is not there"
start_daemon
attackers() { nsenter --target "${PID[inside]}" --user --net --preserve-credentials "$@"; }
[[ $(attackers ip -oneline address show dev eb) == *203.0.113.9* ]] || fail "the attacker is not ready"
never() {
  [[ $(ctl vdev show "v$captured" -o json) == *'"port_state": "LOST"'* ]] || fail "$1: v$captured is not lost"
  [[ $(ctl gid list) != *203.0.113* ]] || fail "$1: the attacker's address is a GID: $(ctl gid list)"
  devices=$(attackers env -i "${ENVIRONMENT[@]}" ibv_devices 2>&1 || true)
  [[ $devices != *"v$captured"* ]] || fail "$1: the attacker sees v$captured"
}
never "at the start"
sleep 4  # it has been looked for twice more
never "later"

say "a namespace of the old name is another one too: v$captured is deleted"
netns_add "$captured"
loose "$captured" eb
forgotten() { ! ctl vdev show "v$captured" >/dev/null 2>&1; }
wait_until 20 forgotten || fail "v$captured is kept: $(ctl vdev list)"
