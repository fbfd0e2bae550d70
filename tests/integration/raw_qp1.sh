#!/bin/bash
# raw_qp1.sh PROGRAM: a permitted program uses queue pair 1 directly, next to rdma_cm.
#
#     netns a                    netns b                 netns c
#   +--------------+           +--------------+        +---------+
#   | serve        |   veth    |   ask, rping |        | refused |
#   | va --- eth0  |===========|  eth0 --- vb |        | vc      |
#   +--------------+           +--------------+        +---------+
. "$(dirname "$0")/lib.sh"
binary=$1
setup
start_daemon
two_vdevices mediated --allow qp1
add_ipv6
netns_add c
loose c eth0
vdev_create vc c eth0
cp "$binary" "$T/raw"
stat() { ctl conn stats | awk -v name="$1" -v what="$2" '$1 == name && $2 == what { print $3 }'; }

say "not without permission"
on c root "$T/raw" refused vc
ctl vdev show va | grep -w qp1 >/dev/null || fail "the permission is not shown"

say "questions and answers"
spawn server a nobody "$T/raw" serve va 3
wait_until 20 grep -q ready "$T/server.log" || fail "no queue pair 1"
on b nobody "$T/raw" ask vb ::ffff:10.0.0.1 fd00::1
[[ $(grep -c transaction "$T/server.log") -eq 2 ]] || fail "more arrived than was asked: $(<"$T/server.log")"
[[ $(stat vb cm_forged) -eq 1 ]] || fail "what was forged was not refused: $(ctl conn stats)"

say "a request of rdma_cm"
if on b nobody rping -c -C 1 -a 10.0.0.1 >"$T/client.log" 2>&1; then fail "nobody accepted"; fi
grep -q 'REJECTED' "$T/client.log" || fail "it was not refused: $(<"$T/client.log")"
reap server 10
[[ $REAPED -eq 0 ]] || fail "the server ends with status $REAPED"
grep -q 'a REQ' "$T/server.log" || fail "another vdevice has refused"

say "when it has gone, all is as before"
if on b nobody rping -c -C 1 -a 10.0.0.1 >"$T/client.log" 2>&1; then fail "nobody listens"; fi
grep -q 'REJECTED' "$T/client.log" || fail "it was not refused: $(<"$T/client.log")"
server=(rping -s -C 3 -a 10.0.0.1)
listening_server a nobody "${server[@]}"
on b nobody rping -c -C 3 -a 10.0.0.1 >"$T/client.log" 2>&1 ||
  grep -q 'Bad file descriptor' "$T/client.log" || fail "no connections beside it"
reap server 10
