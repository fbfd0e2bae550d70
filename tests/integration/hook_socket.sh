#!/bin/bash
# hook_socket.sh: what hooks of container runtimes get from vrdmad, and what they do not get.
#
#     netns a (two containers of a pod)     netns b               netns c             netns u: of user 1001
#   +----------------------------------+  +------------+   +-------------------+   +-----------------------+
#   | eth0 10.0.0.1                    |==| 10.0.0.2   |   | eth0 comes later  |   | eth0, made by the user |
#   +----------------------------------+  +------------+   +-------------------+   +-----------------------+
. "$(dirname "$0")/lib.sh"
setup
mkdir -m 1777 "$T/holds"
cat >"$T/classes.conf" <<'END'
users = 1001 1002
[small]
tenant = red
quota = qp=64
annotations = quota name
max_quota = qp=128
[alone]
per_container = yes
fabric = tenant
[few]
fabric = tenant
per_container = yes
users = 1001
most = 2
[private]
memory = reached
END
options=(--classes "$T/classes.conf")
start_daemon "${options[@]}"
cp "$(dirname "$0")/hook_client.py" "$T/"
netns_add a b c
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24

hook() { timeout 60 python3 "$T/hook_client.py" "$R/hook.sock" "$@"; }
as_user() { setpriv --reuid 1001 --regid 1001 --clear-groups "$@"; }
container() { spawn "$1" "$2" root sleep 1000; wait_until 20 in_netns "$1" "$2" || fail "$1 does not start"; }
in_netns() { [[ $(stat -Lc %i "/proc/${PID[$1]}/ns/net") == "$(stat -Lc %i "/run/netns/$(ns "$2")")" ]]; }
dies() { kill -9 "${PID[$1]}"; reap "$1" 5; }
count() { ctl vdev list -o json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)))'; }
has() { [[ $(count) -eq $1 ]]; }
field() { # VDEVICE FIELD
  ctl vdev show "$1" -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)[0][sys.argv[1]])' "$2"
}
refused() { # PATTERN WORD...: by hook
  local pattern=$1 before
  before=$(count)
  shift
  if "$@" >"$T/out" 2>"$T/err"; then fail "it is not refused: $(cat "$T/out")"; fi
  grep -qE "^refused .*$pattern" "$T/out" || fail "it does not say '$pattern': $(cat "$T/out" "$T/err")"
  say "$(cat "$T/out")"
  wait_until 5 has "$before" || fail "what was refused made a vdevice"
}
logged() { grep -qE -- "$1" "$T/vrdmad.log"; }

say "a container gets a vdevice, which ends with it"
container one a
got=$(hook setup c1 "${PID[one]}" class=small pod=p quota=qp=100 -- done) || fail "refused: $got"
read -r ok name tree sockets <<<"${got%%$'\n'*}"
[[ $ok == ok && $name == vrdma0 ]] || fail "the answer is $got"
[[ -f $tree/device/infiniband/vrdma0/node_guid && -S $sockets/0.sock ]] || fail "there is no $tree, or no socket"
[[ $(field vrdma0 tenant) == red && $(field vrdma0 fabric) == containers && $(field vrdma0 netdev) == eth0 ]] ||
  fail "it is not of its class: $(ctl vdev show vrdma0)"
[[ $(field vrdma0 quota) == *"'qp', 'used': 0, 'limit': 100"* ]] || fail "the quota is $(field vrdma0 quota)"
on a root ibv_devinfo -d vrdma0 >/dev/null || fail "it does not work"

say "a second container of the pod shares it"
container two a
got=$(hook setup c2 "${PID[two]}" class=small pod=p -- done) || fail "refused: $got"
[[ $got == "ok vrdma0 "* && $got != *reached* ]] && has 1 || fail "the answer is $got"
[[ $(ctl vdev show vrdma0) == *"container      c1 (process ${PID[one]})"*"container      c2 (process ${PID[two]})"* ]] ||
  fail "it does not show its containers: $(ctl vdev show vrdma0)"
got=$(hook setup c2 "${PID[two]}" class=small pod=p) || fail "asking again is refused: $got"
has 1 || fail "asking again makes another"
dies one
sleep 0.3
has 1 && on a root ibv_devinfo -d vrdma0 >/dev/null || fail "it ends with the first of two containers"
say "also when vrdmad is killed meanwhile"
kill_daemon
start_daemon "${options[@]}"
has 1 && [[ $(field vrdma0 port_state) == ACTIVE ]] || fail "it is not restored: $(ctl vdev list)"
dies two
wait_until 5 has 0 || fail "it outlives its containers: $(ctl vdev list)"
logged "its container c2 has ended, so it is deleted" || fail "the log does not say why"
[[ -z $(ls "$R/netns" "$R/sysfs" | grep -v :) ]] || fail "directories are left: $(ls "$R/netns" "$R/sysfs")"

say "two ids of one process"
container one a
for id in c1 c2; do hook setup $id "${PID[one]}" -- done >/dev/null || fail "refused"; done
dies one
wait_until 5 has 0 || fail "the vdevice outlives the process of both: $(ctl vdev show vrdma0)"

say "a container that ends while no vrdmad runs"
container one a
hook setup c1 "${PID[one]}" -- done >/dev/null || fail "refused"
kill_daemon
dies one
start_daemon "${options[@]}"
has 0 || fail "it outlives its container: $(ctl vdev list)"

say "a hook that ends before it has finished leaves nothing"
container one a
container two a
hook setup c1 "${PID[one]}" >/dev/null || fail "refused"
wait_until 5 has 0 || fail "a vdevice is left"
say "a hook that fails says why in the log"
refused "its hook failed: no space" hook setup c1 "${PID[one]}" -- failed c1 $'no space\nleft'
wait_until 5 has 0 || fail "a vdevice is left"
logged 'container c1 of user 0 gets no vdevice: its hook failed: no space.x0aleft' || fail "the log does not say so"
hook setup c1 "${PID[one]}" -- hold "$T/held" >"$T/hook.log" &
PID[hook]=$!
wait_until 10 test -e "$T/held" || fail "the hook gets no answer: $(cat "$T/hook.log")"
hook setup c2 "${PID[two]}" -- done >/dev/null || fail "refused"
has 1 || fail "the pod does not share it"
rm "$T/held"
reap hook 5
has 1 && on a root ibv_devinfo -d vrdma0 >/dev/null || fail "the end of one hook takes the other's vdevice"
dies one
sleep 0.3
has 1 || fail "a container that was taken back still counts"
dies two
wait_until 5 has 0 || fail "a vdevice is left"

say "one for each container of a pod, if the class says so"
container one a
container two a
hook setup c1 "${PID[one]}" class=alone -- done >/dev/null || fail "refused"
got=$(hook setup c2 "${PID[two]}" class=alone -- done) || fail "refused: $got"
[[ $got == "ok vrdma1 "* ]] && has 2 || fail "the answer is $got"
got=$(hook setup c2 "${PID[two]}" class=alone) || fail "asking again is refused: $got"
[[ $got == "ok vrdma1 "* ]] && has 2 || fail "asking again makes another: $got"
dies one
wait_until 5 has 1 || fail "the first outlives its container"
dies two
wait_until 5 has 0 || fail "the second outlives its container"

say "a netdev that comes after the hook"
files() { find "/proc/$DAEMON/fd" -mindepth 1 | wc -l; }
container one c
sleep 0.5
open=$(files)
got=$(hook setup c1 "${PID[one]}" -- done) || fail "refused: $got"
read -r ok name tree sockets <<<"${got%%$'\n'*}"
[[ $(field vrdma0 port_state) == PENDING && $(field vrdma0 lost) == *"no netdev with an address"* ]] ||
  fail "it does not wait: $(ctl vdev show vrdma0 -o json)"
few() { (( $(files) - open <= 4 )); }
wait_until 5 few || fail "a vdevice that waits holds $(($(files) - open)) descriptors"
[[ $(ctl vdev list) == *"is not complete yet: its namespace has no netdev"* ]] || fail "the list does not say why"
inode=$(stat -c %i "$tree" "$sockets")
kill_daemon
start_daemon "${options[@]}"
[[ $(field vrdma0 port_state) == PENDING ]] || fail "it does not wait after a restart: $(ctl vdev list)"
loose c eth0
ip_in c address add 10.0.0.9/24 dev eth0
is_active() { [[ $(field vrdma0 port_state) == ACTIVE ]]; }
wait_until 5 is_active || fail "it is not completed: $(ctl vdev list)"
[[ $(stat -c %i "$tree" "$sockets") == "$inode" ]] || fail "the directories are others"
gid() { grep -q 0a00:0009 "$tree/device/infiniband/vrdma0/ports/1/gids/1"; }
wait_until 5 gid || fail "the tree does not show its address"
on c root ibv_devinfo -d vrdma0 >/dev/null || fail "it does not work"

say "a netdev that goes and returns, as when an engine disconnects a container from its network"
guid=$(field vrdma0 node_guid)
spawn program c root ibv_rc_pingpong -d vrdma0 -g 1 -p $PORT
wait_until 10 listens program $PORT || fail "the program does not start: $(<"$T/program.log")"
ip_in c link delete eth0
is_pending() { [[ $(field vrdma0 port_state) == PENDING && $(field vrdma0 lost) == *"its netdev 'eth0' does not exist"* ]]; }
wait_until 5 is_pending || fail "it does not wait: $(ctl vdev list)"
logged "netdev deleted, so it waits for another 'eth0'" || fail "the log does not say why"
[[ $(ctl events --since 5m) == *lost*vrdma0*"netdev deleted"* ]] || fail "no event says so: $(ctl events --since 5m)"
kill_programs program
loose c eth1
ip_in c address add 10.0.7.9/24 dev eth1  # of another network
kill_daemon
start_daemon "${options[@]}"
[[ $(field vrdma0 port_state) == PENDING ]] || fail "it does not wait after a restart: $(ctl vdev list)"
loose c eth0
ip_in c address add 10.0.0.9/24 dev eth0
wait_until 5 is_active || fail "it is not completed: $(ctl vdev list)"
[[ $(field vrdma0 netdev) == eth0 ]] || fail "it is on $(field vrdma0 netdev)"
returned() {
  [[ $(stat -c %i "$tree" "$sockets") == "$inode" ]] || fail "the directories are others"
  [[ $(field vrdma0 node_guid) == "$guid" ]] || fail "it has another GUID"
  wait_until 5 gid || fail "the tree does not show its address"
  on c root ibv_devinfo -d vrdma0 >/dev/null || fail "it does not work"
}
returned

say "one that goes while no vrdmad runs, and returns then or later"
for when in then later; do
  kill_daemon
  ip_in c link delete eth0
  if [[ $when == later ]]; then
    start_daemon "${options[@]}"
    wait_until 5 is_pending || fail "it does not wait: $(ctl vdev list)"
  fi
  loose c eth0
  ip_in c address add 10.0.0.9/24 dev eth0
  if [[ $when == then ]]; then start_daemon "${options[@]}"; fi
  wait_until 5 is_active || fail "it is not completed: $(ctl vdev list)"
  returned
done
ip_in c link delete eth1
ip_in c link delete eth0
wait_until 5 is_pending || fail "it does not wait: $(ctl vdev list)"
dies one
wait_until 5 has 0 || fail "a vdevice is left"
loose c eth0
ip_in c address add 10.0.0.9/24 dev eth0

say "nobody keeps an address that a container waits for"
ip_in c address flush dev eth0
container two a
hook setup c2 "${PID[two]}" class=small name=red0 -- done >/dev/null || fail "refused"
ip_in a address add 10.0.0.9/24 dev eth0
taken() { on a root ibv_devinfo -v -d red0 | grep -q '::ffff:10.0.0.9'; }
given_up() { ! taken; }
wait_until 5 taken || fail "a tenant that is alone does not get its new address"
container one c
hook setup c1 "${PID[one]}" -- done >/dev/null || fail "refused"
[[ $(field vrdma0 port_state) == PENDING ]] || fail "it does not wait"
wait_until 5 given_up || fail "the address is still that of another tenant"
ip_in c address add 10.0.0.9/24 dev eth0
its_own() { on c root ibv_devinfo -v -d vrdma0 | grep -q '::ffff:10.0.0.9'; }
wait_until 5 its_own || fail "it does not get its address"
ip_in a address delete 10.0.0.9/24 dev eth0
dies one
dies two
wait_until 5 has 0 || fail "a vdevice is left"

say "equal addresses"
netns_add d
loose d eth0
ip_in d address add 10.0.0.1/24 dev eth0
container one a
container two d
hook setup c1 "${PID[one]}" -- done >/dev/null || fail "refused"
refused 'podman network create' hook setup c2 "${PID[two]}"
logged 'container c2 of user 0 gets no vdevice: .*podman network create' || fail "the log does not say so"
hook setup c2 "${PID[two]}" class=alone -- done >/dev/null || fail "refused in a fabric of its own"
dies two
wait_until 5 has 1 || fail "a vdevice is left"

say "what is refused"
container two b
refused "there is no class 'x'" hook setup c2 "${PID[two]}" class=x
refused "lets no container choose it" hook setup c2 "${PID[two]}" name=mlx5_0
refused "at most qp=128" hook setup c2 "${PID[two]}" class=small quota=qp=129
ctl tenant set red --default cq=16 >/dev/null
refused "its tenant and parent give at most cq=16" hook setup c2 "${PID[two]}" class=small quota=cq=17
refused "at most pd=" hook setup c2 "${PID[two]}" class=small quota=pd=65536
refused "not that of the container's first process" hook setup c2 "${PID[two]}" netns="/run/netns/$(ns a)"
refused "a network namespace and a pidfd" hook setup c2 "${PID[two]}" netns=/dev/null
refused "a network namespace and a pidfd" hook setup c2 "${PID[two]}" netns="/proc/self/ns/mnt"
refused "a network namespace and a pidfd" hook setup c2 "${PID[two]}" pidfd=/proc/self
refused "has characters that it may not have" hook setup "c 2" "${PID[two]}"
refused "names no container" hook setup "" "${PID[two]}"
refused "uses the host's network" hook setup c2 $$
for length in 1 1024 1368 1495 1497 4000; do refused "of another version" hook raw "$length"; done
refused "speaks version 4294967295" hook raw 1504
refused "did not begin" hook "done"
refused "must ask once" hook setup c2 "${PID[two]}" -- setup c2 "${PID[two]}"
echo "qouta = 1" >>"$T/classes.conf"
refused "class 'private': there is no key 'qouta'; do you mean quota?" hook setup c2 "${PID[two]}" class=private
hook setup c2 "${PID[two]}" -- done >/dev/null || fail "a mistake of one class stops another"
dies two
wait_until 5 has 1 || fail "a vdevice is left"
ctl class list | grep -q "^private: .*there is no key 'qouta'" || fail "class list: $(ctl class list)"
container two b
sed -i '$d' "$T/classes.conf"
got=$(hook setup c2 "${PID[two]}" class=private -- done) || fail "the file is not read again"
[[ $(head -1 <<<"$got") == *" reached" ]] || fail "the hook does not hear that memory is reached: $got"
dies two
wait_until 5 has 1 || fail "a vdevice is left"

say "another user"
user_hook() { as_user timeout 60 python3 "$T/hook_client.py" "$R/hook.sock" "$@"; }
container two b
refused "belongs to user 0, not to user 1001" user_hook setup c2 "${PID[two]}" netns="/run/netns/$(ns b)"
refused "may not use class 'private'" user_hook setup c2 "${PID[two]}" netns="/run/netns/$(ns b)" class=private
dies two
as_user unshare --user --net true 2>/dev/null || skip "users cannot make namespaces here"
setpriv --reuid 1001 --regid 1001 --clear-groups unshare --user --map-root-user --net sleep 1000 &
PID[theirs]=$!
theirs() { [[ $(stat -Lc %i "/proc/${PID[theirs]}/ns/net" 2>/dev/null) != "$(stat -Lc %i /proc/self/ns/net)" && $(<"/proc/${PID[theirs]}/comm") == sleep ]]; }
wait_until 20 theirs || fail "the user's container does not start"
loose_commands eth0 1500 | nsenter --net="/proc/${PID[theirs]}/ns/net" ip -batch -
nsenter --net="/proc/${PID[theirs]}/ns/net" ip address add 10.0.2.100/24 dev eth0
got=$(user_hook setup c3 "${PID[theirs]}" -- done) || fail "refused: $got"
has 2 || fail "there is no vdevice for the user: $(ctl vdev list)"
[[ $(ctl vdev list -o json) == *'"container": "c3"'* ]] || fail "it has no label"
read -r ok name tree sockets <<<"${got%%$'\n'*}"
as_user cat "$tree/device/infiniband/vrdma0/node_guid" >/dev/null || fail "the user cannot read its tree"
for path in "$R/sysfs" "$R/sysfs/$(cookie_of a)"; do
  if as_user ls "$path" >/dev/null 2>&1; then fail "the user can list $path"; fi
done
if setpriv --reuid 1002 --regid 1002 --clear-groups ls "${tree%/*}" >/dev/null 2>&1; then fail "others can list $tree"; fi
kill_daemon
start_daemon "${options[@]}"
as_user cat "$tree/device/infiniband/vrdma0/node_guid" >/dev/null || fail "the user cannot read its tree after a restart"

say "users do not share addresses, but the containers of one user do"
user_of() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }
user_container() { # NAME USER: also a namespace of that name
  setpriv --reuid "$2" --regid "$2" --clear-groups unshare --user --map-root-user --net sleep 1000 &
  PID[$1]=$!
  is_apart() { [[ $(stat -Lc %i "/proc/${PID[$1]}/ns/net") != "$(stat -Lc %i /proc/self/ns/net)" && $(<"/proc/${PID[$1]}/comm") == sleep ]]; }
  wait_until 20 is_apart "$1" || fail "$1 does not start"
  NAMESPACES+=("$(ns "$1")")
  ip netns attach "$(ns "$1")" "${PID[$1]}"
}
user_container other 1002
loose other eth0
ip_in other address add 10.0.2.100/24 dev eth0
got=$(user_of 1002 timeout 60 python3 "$T/hook_client.py" "$R/hook.sock" setup c4 "${PID[other]}" -- done) ||
  fail "another user's address is refused: $got"
[[ $(ctl vdev list) == *" uid1001 "*" uid1002 "* || $(ctl vdev list) == *" uid1002 "*" uid1001 "* ]] ||
  fail "they are not in fabrics of their users: $(ctl vdev list)"
user_container near 1001
user_container far 1001
join near eth1 10.0.3.1/24 far eth1 10.0.3.2/24
for each in near far; do
  got=$(user_hook setup "$each" "${PID[$each]}" -- done) || fail "refused: $got"
done
tcp_server near root ibv_rc_pingpong -d vrdma0 -g 1 -n 100
on far root ibv_rc_pingpong -d vrdma0 -g 1 -n 100 10.0.3.1 >"$T/out" 2>&1 || fail "they do not meet: $(cat "$T/out" "$T/server.log")"
reap server 10
for each in other near far; do dies "$each"; done
wait_until 5 has 2 || fail "vdevices are left: $(ctl vdev list)"

say "a user has a number of containers at most"
for each in c10 c11 c11; do
  got=$(user_hook setup "$each" "${PID[theirs]}" class=few -- done) || fail "refused: $got"
done
refused "user 1001 has 2 containers with vdevices of class 'few', which allows 2: end some, or raise .most." \
  user_hook setup c12 "${PID[theirs]}" class=few
kill_daemon
start_daemon "${options[@]}"
refused "which allows 2" user_hook setup c12 "${PID[theirs]}" class=few
user_hook setup c12 "${PID[theirs]}" -- done >/dev/null || fail "the limit of one class is that of another"
container two b
for each in c13 c14 c15; do
  got=$(hook setup "$each" "${PID[two]}" class=few -- done) || fail "root is refused: $got"
done
dies two
wait_until 5 has 4 || fail "vdevices are left: $(ctl vdev list)"

say "a user has more routes than are read"
user_container routes 1001
loose routes eth0
loose routes eth1
ip_in routes address add 10.0.4.1/24 dev eth0
ip_in routes address add 10.0.5.1/24 dev eth1
for i in {0..3999}; do echo "route add 10.7.$((i / 256)).$((i % 256))/32 dev eth1"; done | ip_in routes -batch -
got=$(user_hook setup c5 "${PID[routes]}" -- done) || fail "refused: $got"
of_routes() { ctl vdev list -o json | python3 -c 'import json, sys; print(*[v[sys.argv[1]] for v in json.load(sys.stdin) if v.get("labels", {}).get("container") == "c5"])' "$1"; }
[[ $(of_routes lost) == *"has too many routes: vrdmad reads 256 KiB of them"* ]] || fail "it does not say so: $(ctl vdev list)"
ip_in routes route add default via 10.0.4.2 dev eth0
complete() { [[ $(of_routes netdev) == eth0 ]]; }
wait_until 10 complete || fail "the default route does not decide: $(ctl vdev list)"
dies routes
wait_until 5 has 4 || fail "vdevices are left: $(ctl vdev list)"

say "floods, and descriptors that take long to close"
user_hook crowd 200 -- hold "$T/holds/crowd" >"$T/crowd.log" 2>&1 &
PID[crowd]=$!
wait_until 10 test -e "$T/holds/crowd" || fail "the crowd does not come: $(cat "$T/crowd.log")"
refused "too many hooks" user_hook ended c3
setpriv --reuid 1002 --regid 1002 --clear-groups timeout 60 python3 "$T/hook_client.py" "$R/hook.sock" \
  slow 20 -- hold "$T/holds/slow" >"$T/slow.log" 2>&1 &
PID[slow]=$!
wait_until 20 test -e "$T/holds/slow" || fail "the slow ones do not come: $(cat "$T/slow.log")"
container two b
got=$(hook setup c2 "${PID[two]}" -- done -- ended c2) || fail "refused: $got"
dies two
wait_until 5 has 4 || fail "a vdevice is left"
rm "$T/holds/crowd" "$T/holds/slow"
reap crowd 10
reap slow 10
served() { user_hook ended c3 >/dev/null; }
wait_until 10 served || fail "the user is refused after the crowd has gone"

say "a person with more users than there is room for"
many=()
for uid in {1010..1025}; do many+=(as "$uid" -- crowd 31 --); done
got=$(timeout 60 python3 "$T/hook_client.py" "$R/hook.sock" "${many[@]}" as 1001 -- ended c3) || fail "another user is refused: $got"

say "a person with users of a subordinate range, whose descriptors take long to close"
slow=()
for uid in {100000..100015}; do slow+=(as "$uid" -- slow 20 --); done
setpriv --reuid 0 timeout 60 python3 "$T/hook_client.py" "$R/hook.sock" "${slow[@]}" hold "$T/holds/slow" >"$T/slow.log" 2>&1 &
PID[slow]=$!
wait_until 30 test -e "$T/holds/slow" || fail "the slow ones do not come: $(cat "$T/slow.log")"
for uid in 1001 1002 1003 1004; do
  got=$(timeout 60 python3 "$T/hook_client.py" "$R/hook.sock" as $uid -- ended c3) || fail "user $uid is refused: $got"
done
rm "$T/holds/slow"
reap slow 10

say "descriptors whose file system never answers a close"
: >"$T/silent"
trap 'status=$? command=$BASH_COMMAND; umount -l "$T/silent" 2>/dev/null || true; finish $status "$command"' EXIT
"$(dirname "$0")/fuse_silent.py" "$T/silent" flush >"$T/fuse.log" 2>&1 &
PID[fuse]=$!
is_mounted() { grep -q " $T/silent " /proc/self/mountinfo; }
if wait_until 5 is_mounted; then
  container two b
  for i in 1 2 3 4; do
    setpriv --reuid 1002 --regid 1002 --clear-groups timeout 60 python3 "$T/hook_client.py" "$R/hook.sock" \
      setup c2 "${PID[two]}" netns="$T/silent" >"$T/silent$i.log" 2>&1 &
    PID[silent$i]=$!
  done
  all_refused() { [[ $(cat "$T"/silent[1-4].log | grep -c '^refused .*a network namespace and a pidfd') -eq 4 ]]; }
  wait_until 10 all_refused || fail "they are not refused: $(cat "$T"/silent[1-4].log)"
  for _ in 1 2 3; do
    got=$(timeout 20 python3 "$T/hook_client.py" "$R/hook.sock" setup c2 "${PID[two]}" -- done -- ended c2) || fail "refused: $got"
  done
  for i in 1 2 3 4; do ! ended "${PID[silent$i]}" || fail "a close is answered: nothing is tested"; done
  dies two
  wait_until 5 has 4 || fail "a vdevice is left"
  kill -9 "${PID[fuse]}"
  reap fuse 5
  umount -l "$T/silent"  # the kernel may still be closing what was held
  for i in 1 2 3 4; do reap "silent$i" 5; done
else
  say "not tested: there is no FUSE here: $(<"$T/fuse.log")"
  kill "${PID[fuse]}" 2>/dev/null || true
  unset "PID[fuse]"
fi
dies one
kill -9 "${PID[theirs]}"
wait_until 5 has 0 || fail "vdevices are left: $(ctl vdev list)"
unset "PID[theirs]"

say "the host's network is also that of process 1, if vrdmad has another one"
kill_daemon
netns_add apart
ip_in apart link set lo up
printf '#!/bin/sh\nexec nsenter --net=/run/netns/%s -- %s "$@"\n' "$(ns apart)" "$VRDMAD" >"$T/vrdmad-apart"
chmod +x "$T/vrdmad-apart"
VRDMAD="$T/vrdmad-apart" start_daemon "${options[@]}"
if [[ $(stat -Lc %i /proc/1/ns/net) == "$(stat -Lc %i /proc/self/ns/net)" ]]; then
  refused "uses the host's network" hook setup c16 $$
fi
