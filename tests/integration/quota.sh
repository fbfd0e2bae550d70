#!/bin/bash
# quota.sh: a vdevice uses no more than its quota, and its use is displayed as it changes.
#
#     netns a                 netns b
#   +-----------+           +-----------+
#   | server    |   veth    |    client |
#   | va -- eth0|===========|eth0 -- vb |     va: qp=4
#   +-----------+           +-----------+
. "$(dirname "$0")/lib.sh"
setup
start_daemon
netns_add a b
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
vdev_create va a eth0 --tenant red --quota qp=4
vdev_create vb b eth0 --tenant red

used() { # of va's KIND
  ctl quota show va -o json | python3 -c '
import json, sys
def rows(x):
    if isinstance(x, dict):
        if x.get("kind") == sys.argv[1]:
            yield x
        x = list(x.values())
    if isinstance(x, list):
        for y in x:
            yield from rows(y)
print(next(int(r.get("used", 0)) for r in rows(json.load(sys.stdin))))' "$1"
}
used_is() { [[ $(used "$1") -eq $2 ]]; }

# The server creates its queue pairs after the client has connected.
talk() { # ARGUMENTS of both
  spawn server a nobody ib_send_bw -F -d va "$@"
  wait_until 20 listens server || fail "the server does not listen"
  spawn client b nobody ib_send_bw -F -d vb "$@" 10.0.0.1
}

say "8 queue pairs are too many"
talk -q 8
reap server 20
[[ $REAPED -ne 0 ]] || fail "ib_send_bw makes 8 queue pairs"
grep -qiE "create QP|can't create" "$T/server.log" || fail "it fails for another reason"
reap client 20
wait_until 5 used_is qp 0 || fail "what was refused is counted: $(used qp)"

say "4 are not"
talk -q 4 -D 300
wait_until 20 used_is qp 4 || fail "4 are in use, shown are $(used qp)"
[[ $(used mr) -ge 1 && $(used context) -ge 1 ]] || fail "mr or context is not counted"

say "a limit below the use is refused, and says the use"
if ctl quota set va qp=3 2>"$T/set.log"; then fail "qp=3 is taken"; fi
grep -q 4 "$T/set.log" || fail "the refusal does not say 4: $(cat "$T/set.log")"
ctl quota set va qp=16
kill -9 "${PID[server]}" "${PID[client]}"
reap server 5
reap client 5
wait_until 5 used_is qp 0 || fail "the dead's queue pairs are still counted"
# shellcheck disable=SC2034  # used by pair
INDEX_A=0 INDEX_B=0
pair nobody ib_send_bw -F -q 8 -n 100

say "a tenant's vdevices have its defaults, and together no more than its ceiling"
netns_add c
loose c eth0
loose c eth1
limit_of() { # VDEVICE KIND
  ctl quota show "$1" | awk -v kind="$2" '$2 == kind { print $4 }'
}
refused() { # PATTERN COMMAND...: it is, in one sentence that has the pattern
  if "${@:2}" >"$T/refused" 2>&1; then fail "${*:2}: is done"; fi
  grep -qE "$1" "$T/refused" || fail "${*:2}: the refusal says: $(cat "$T/refused")"
  [[ $(wc -l <"$T/refused") -eq 1 ]] || fail "${*:2}: not one sentence: $(cat "$T/refused")"
}
ctl tenant set blue --default qp=8,mr=20 --ceiling qp=12,cq=64
vdev_create vc c eth0 --tenant blue
[[ $(limit_of vc qp) -eq 8 && $(limit_of vc mr) -eq 20 ]] || fail "vc has not its tenant's defaults"
[[ $(limit_of vc cq) -eq 64 ]] || fail "an initial limit is above the ceiling: $(limit_of vc cq)"
refused 'tenant blue: quota qp: .* 13, the ceiling is 12 with an overcommitment of 100%' \
  ctl quota set vc qp=13
refused 'tenant blue: quota qp: .* 16, the ceiling is 12' vdev_create vd c eth1 --tenant blue --quota cq=0
refused 'tenant blue: quota qp: .* 8, the ceiling is 7' ctl tenant set blue --ceiling qp=7
vdev_create vd c eth1 --tenant blue --quota qp=4,cq=0
ctl vdev delete vd

say "overcommitment promises more than there is, and still no more is used"
ctl tenant set blue --ceiling cq=max --overcommit 200
vdev_create vd c eth1 --tenant blue --quota qp=12
[[ $(ctl tenant show blue) =~ blue\ +200%\ +2 ]] || fail "shown is: $(ctl tenant show blue)"
[[ $(ctl tenant show blue) =~ qp\ +8\ +12\ +20\ +0 ]] || fail "shown is: $(ctl tenant show blue)"
ctl vdev delete vd
ctl vdev delete vc

say "so do a parent's"
refused "there is no parent 'mlx5_9'" ctl parent set mlx5_9 --ceiling qp=1
refused 'parent soft: quota qp: .* the ceiling is 5' ctl parent set soft --ceiling qp=5
ctl parent set soft --ceiling qp=2000
refused 'parent soft: quota qp: .* the ceiling is 2000' vdev_create vc c eth0 --tenant green --quota qp=1000
ctl parent set soft --ceiling qp=max
refused "there is no quota kind 'frogs'" ctl tenant set blue --default frogs=1
refused 'overcommit' ctl tenant set blue --overcommit 50

say "what was set survives a kill -9 of vrdmad"
ctl tenant show blue -o json >"$T/before"
kill_daemon
start_daemon
ctl tenant show blue -o json >"$T/after"
cmp "$T/before" "$T/after" || fail "the tenant has now: $(cat "$T/after")"

say "what is used is shown by control group"
spawn server a nobody ib_send_bw -F -d va -q 3
wait_until 20 listens server || fail "the server does not listen"
group=/sys/fs/cgroup/pids/vr$$
[[ -d /sys/fs/cgroup/pids ]] || group=/sys/fs/cgroup/vr$$
if mkdir "$group" 2>/dev/null && sh -c "echo \$\$ >$group/cgroup.procs" 2>/dev/null; then
  spawn client b nobody \
    sh -c "until [ -e $T/go ]; do sleep 0.05; done; exec ib_send_bw -F -d vb -q 3 -D 300 10.0.0.1"
  echo "${PID[client]}" >"$group/cgroup.procs"
  touch "$T/go"
  in_group() { [[ $(ctl quota show --cgroup vb) =~ /vr$$\ +vb\ +qp\ +3 ]]; }
  wait_until 10 in_group || fail "shown is: $(ctl quota show --cgroup vb)"
  [[ $(ctl quota show --cgroup va) != */vr$$* ]] || fail "va's program is not in the control group of this test"
  kill -9 "${PID[client]}"
  reap client 5
  no_group() { [[ $(ctl quota show --cgroup vb) != */vr$$* ]]; }
  wait_until 5 no_group || fail "the group is shown though its program is dead"
  rmdir "$group"
else
  echo "   this machine lets us make no control group"
fi
kill -9 "${PID[server]}" 2>/dev/null || true
reap server 5
