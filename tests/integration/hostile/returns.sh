#!/bin/bash
# returns.sh: a container whose programs may change its network lets its netdev go and return with a neighbour's address.
#
#     netns a: containers one, three     netns b: two              netns c: four
#   +----------------------------+   +---------------------+   +---------------------+
#   | vrdma0 -- eth0 10.0.0.1    |   | vrdma0 -- eth0 .2   |   | vrdma0 -- eth0 .3   |   tenants of one fabric
#   +----------------------------+   +---------------------+   +---------------------+
. "$(dirname "$0")/../lib.sh"
setup
printf 'users = *\n' >"$T/classes.conf"
options=(--classes "$T/classes.conf")
start_daemon "${options[@]}"
cp "$(dirname "$0")/../hook_client.py" "$T/"
netns_add a b c
hook() { timeout 60 python3 "$T/hook_client.py" "$R/hook.sock" "$@" -- done >"$T/hook.log" || fail "refused: $(<"$T/hook.log")"; }
container() { spawn "$1" "$2" root sleep 1000; wait_until 5 in_netns "$1" "$2" || fail "$1 does not start"; }
in_netns() { [[ $(stat -Lc %i "/proc/${PID[$1]}/ns/net") == "$(stat -Lc %i "/run/netns/$(ns "$2")")" ]]; }
dies() { kill -9 "${PID[$1]}"; reap "$1" 5; }
netdev() { loose "$1" eth0; ip_in "$1" address add "10.0.0.$2/24" dev eth0; } # NETNS LAST-BYTE
vdev() { ctl vdev list -o json | python3 -c '
import json, sys
print(next((row[sys.argv[2]] for row in json.load(sys.stdin) if row["labels"].get("container") == sys.argv[1]), ""))' "$1" "$2"; }
is_in() { [[ $(vdev "$1" port_state) == "$2" ]]; } # CONTAINER STATE
has_gid() { [[ $(vdev "$1" gids) == *":$2'"* ]]; }
leaves() { # NETNS CONTAINER
  ip_in "$1" link delete eth0
  wait_until 5 is_in "$2" PENDING || fail "$2 does not wait: $(ctl vdev list)"
}
returns() { # NETNS LAST-BYTE CONTAINER
  netdev "$1" "$2"
  wait_until 10 is_in "$3" ACTIVE || fail "$3 does not return: $(ctl vdev list)"
}
for space in a.1 b.2 c.3; do netdev ${space/./ }; done
container one a
container two b
container four c
hook setup c1 "${PID[one]}" network_admin=yes
hook setup c2 "${PID[two]}"
hook setup c4 "${PID[four]}" pod=p
for each in c1 c2 c4; do is_in $each ACTIVE || fail "$each: $(ctl vdev list)"; done

say "two's address is away: programs that may exchange netdevs do not get it"
leaves b c2
leaves a c1
returns a 2 c1
has_gid c1 10.0.0.2 && fail "one has two's address: $(ctl gid list)"
[[ $(vdev c1 addresses_ignored) -gt 0 ]] || fail "it is not counted"
returns b 2 c2
has_gid c2 10.0.0.2 || fail "two does not have its address: $(ctl gid list)"

say "nor those of a pod, whose other containers vrdmad does not know"
leaves b c2
leaves c c4
returns c 2 c4
has_gid c4 10.0.0.2 && fail "a pod has two's address: $(ctl gid list)"
returns b 2 c2
has_gid c2 10.0.0.2 || fail "two does not have its address: $(ctl gid list)"

say "nor while no vrdmad runs"
leaves b c2
kill_daemon
ip_in a link delete eth0
netdev a 2
start_daemon "${options[@]}"
wait_until 10 is_in c1 ACTIVE || fail "one does not return: $(ctl vdev list)"
has_gid c1 10.0.0.2 && fail "one has two's address: $(ctl gid list)"
leaves a c1
kill_daemon
netdev a 2
start_daemon "${options[@]}"
wait_until 10 is_in c1 ACTIVE || fail "one does not return: $(ctl vdev list)"
has_gid c1 10.0.0.2 && fail "one has two's address: $(ctl gid list)"

say "their own address returns"
leaves a c1
returns a 1 c1
has_gid c1 10.0.0.1 || fail "one does not have its own address: $(ctl gid list)"

say "others get what their engine gives them, until a container that may exchange netdevs joins"
returns b 2 c2
leaves b c2
returns b 22 c2
has_gid c2 10.0.0.22 || fail "two does not have its new address: $(ctl gid list)"
container three b
hook setup c3 "${PID[three]}" network_admin=yes
[[ $(ctl vdev list -o json | grep -c '"network_admin": "yes"') -eq 2 ]] || fail "the vdevice of two and three has no label: $(ctl vdev list -o json)"
leaves b c2
returns b 2 c2
has_gid c2 10.0.0.2 && fail "two and three have another address: $(ctl gid list)"
for each in one two three four; do dies $each; done
