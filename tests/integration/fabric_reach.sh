#!/bin/bash
# fabric_reach.sh: which fabrics may have peers to which only a network leads: only those that an operator set so,
# before or after they have vdevices. In one namespace no address is in two such fabrics. A restart keeps all of it.
#
#            netns a                netns b
#   +------------------------+   +-----------+
#   | va, vb -- eth0 10.0.0.1|   | vf -- eth0|   va: fabric red   vd, vf: fabric far
#   |     vd -- eth1 10.0.1.1|   |  10.0.0.1 |   vb: fabric blue
#   +------------------------+   +-----------+
. "$(dirname "$0")/lib.sh"
setup
audit=$T/audit.jsonl
start_daemon --audit-log "$audit"
netns_add a b
loose a eth0
loose a eth1
loose b eth0
ip_in a address add 10.0.0.1/24 dev eth0
ip_in a address add 10.0.1.1/24 dev eth1
ip_in b address add 10.0.0.1/24 dev eth0

fabrics() { ctl fabric list -o json | python3 -c '
import json, sys
print(*("{name}:{reach}:{vdevices}".format(**one) for one in json.load(sys.stdin)))'; }
are() { [[ $(fabrics) == "$1" ]] || fail "the fabrics are $(fabrics), not $1"; }
reach_of() { ctl vdev show "$1" | awk '$1 == "reach" { print $2 }'; }
has_gid() { [[ $(ctl gid list "$1") == *":$2  "* ]]; }  # VDEVICE ADDRESS
refusals() { ctl stats daemon | awk '$2 == "gids_refused" { print $3 }'; }
refused() { # PATTERN COMMAND...: it is, in one sentence that has the pattern
  if "${@:2}" >"$T/refused" 2>&1; then fail "${*:2}: is done"; fi
  grep -qE "$1" "$T/refused" || fail "${*:2}: the refusal says: $(cat "$T/refused")"
  [[ $(wc -l <"$T/refused") -eq 1 ]] || fail "${*:2}: not one sentence: $(cat "$T/refused")"
}
restart() { sleep 0.4; kill_daemon; start_daemon --audit-log "$audit"; }

say "a fabric reaches this host, until an operator says otherwise"
are ""
vdev_create va a eth0 --tenant red --fabric red
are "red:host:1"
[[ $(reach_of va) == host ]] || fail "va reaches $(reach_of va)"
ctl fabric set nowhere --reach host
are "red:host:1"
ctl fabric set far --reach network
are "far:network:0 red:host:1"
spawn server a root ibv_rc_pingpong -d va -g "$(gid_index a va 10.0.0.1)"
has_session() { [[ $(ctl vdev show va -o json) == *'"sessions": 1,'* ]]; }
wait_until 20 has_session || fail "there is no session"
ctl watch >"$T/watch.log" 2>&1 &
PID[watch]=$!
wait_until 10 grep -q ' va ' "$T/watch.log" || fail "watch shows no vdevice"
ctl fabric set red --reach network
wait_until 10 grep -q 'fabric changed' "$T/watch.log" || fail "no event tells that the reach changed"
kill "${PID[watch]}"
reap watch 5
[[ $(reach_of va) == network ]] || fail "va reaches $(reach_of va)"
[[ $(ctl fabric list red) == *"red   network         1     2  all" ]] || fail "the table is: $(ctl fabric list red)"

say "names are checked"
refused "the fabric 'a/b' is not a valid name" ctl fabric set a/b --reach network
refused "the fabric 'tenant/' is not a valid name" ctl fabric set tenant/ --reach network
refused "fabric 'vdev/1' is that of one vdevice" ctl fabric set vdev/1 --reach network
ctl fabric set tenant/red --reach network
are "far:network:0 red:network:1 tenant/red:network:0"
ctl fabric set tenant/red --reach host

say "two vdevices of a namespace do not have one address in two fabrics that reach the network"
a=$(ns a)
both="of vdevice $a/v. in fabric [a-z]* is held by vdevice $a/va in fabric red of the same network namespace.*"
both+='`vrdmactl fabric set red --reach host`$'
refused "$both" vdev_create vc a eth0 --tenant green --fabric far
are "far:network:0 red:network:1"
vdev_create vb a eth0 --tenant blue --fabric blue
refused "$both" ctl fabric set blue --reach network
are "blue:host:1 far:network:0 red:network:1"
[[ $(reach_of vb) == host ]] || fail "vb reaches $(reach_of vb)"
vdev_create vd a eth1 --tenant green --fabric far
vdev_create vf b eth0 --tenant green --fabric far
[[ $(reach_of vd) == network ]] || fail "vd reaches $(reach_of vd)"

say "an address that comes later is no GID while the other vdevice has it, and is counted"
before=$(refusals)
ip_in b address delete 10.0.0.1/24 dev eth0
gone() { ! has_gid vf 10.0.0.1; }
wait_until 5 gone || fail "vf keeps the address that its interface lost"  # it is in the fabric of vd
ip_in a address add 10.0.0.1/24 dev eth1
counted() { [[ $(refusals) -eq $((${before:-0} + $1)) ]]; }
wait_until 5 counted 1 || fail "refused: $(refusals), before: $before"
grep -qE "vdevice $a/vd: GID ::ffff:10.0.0.1 of vdevice $a/vd in fabric far is held by vdevice $a/va in fabric red" \
  "$T/vrdmad.log" || fail "the log does not say why"
ip_in a address add 10.0.1.2/24 dev eth1
wait_until 5 has_gid vd 10.0.1.2 || fail "another address is no GID"
has_gid vd 10.0.0.1 && fail "vd has the address of va"
counted 1 || fail "one address is counted again: $(refusals)"
ip_in a address delete 10.0.0.1/24 dev eth0
wait_until 5 has_gid vd 10.0.0.1 || fail "vd does not get the address that is free"
ip_in a address add 10.0.0.1/24 dev eth0
wait_until 5 counted 2 || fail "refused: $(refusals), before: $before"
has_gid va 10.0.0.1 && fail "va has the address of vd"
wait_until 5 has_gid vb 10.0.0.1 || fail "vb, of a fabric that reaches this host, does not have the address"

say "a restart keeps what was set, and each vdevice its address"
restart
are "blue:host:1 far:network:2 red:network:1"
[[ $(reach_of va)$(reach_of vb)$(reach_of vd) == networkhostnetwork ]] || fail "the vdevices reach: $(ctl vdev show)"
has_gid vd 10.0.0.1 || fail "a restart takes the address from vd"
has_gid va 10.0.0.1 && fail "a restart gives va the address of vd"
wait_until 20 has_session || fail "the session is not taken over"

say "set back, it is as it was"
ctl fabric set far --reach host
are "blue:host:1 far:host:2 red:network:1"
wait_until 5 has_gid va 10.0.0.1 || fail "va does not get the address that is free"
has_gid vd 10.0.0.1 || fail "vd loses its address"
refused "of vdevice $a/vd in fabric far is held by vdevice $a/v[ab] in fabric (red|blue)" ctl fabric set far --reach network
kill -9 "${PID[server]}"
reap server 5
ctl vdev delete va
ctl fabric set red --reach host
are "blue:host:1 far:host:2"
ctl fabric set blue --reach network
restart
are "blue:network:1 far:host:2"
[[ $(reach_of vb)$(reach_of vd) == networkhost ]] || fail "the vdevices reach: $(ctl vdev show)"

say "the audit has each change"
python3 - "$audit" <<'END' || fail "the audit is not right"
import json, sys
audit = [json.loads(line) for line in open(sys.argv[1])]
got = [(a["object"], a["arguments"], a["result"]) for a in audit if a["audit"] == "fabric set"]
assert ("far", "reach=network", "done") in got, got
assert ("blue", "reach=network", "refused") in got, got
assert got[-1] == ("blue", "reach=network", "done"), got
END
