#!/bin/bash
# quota.sh: a vdevice uses no more than its quota, and its use is shown as it changes.
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

# The server makes its queue pairs when the client has come.
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
# shellcheck disable=SC2034  # of pair
INDEX_A=0 INDEX_B=0
pair nobody ib_send_bw -F -q 8 -n 100
