#!/bin/bash
# events.sh REFUSED: operators see later who was refused what, and what was lost, taken over or has died; also after a restart.
#
#     netns a         netns b
#   +----------+    +----------+
#   |  va qp=2 |====|  vb      |
#   +----------+    +----------+
. "$(dirname "$0")/lib.sh"
setup
# shellcheck disable=SC2034  # used by stop_daemon
WORKERS_END=1  # because one is killed
start_daemon
netns_add a b
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
vdev_create va a eth0 --tenant red --quota qp=2
vdev_create vb b eth0 --tenant blue --quota mr=77

has_event() { # PYTHON: a condition on an event e
  ctl events -o json | python3 -c 'import json,sys
sys.exit(not any(eval(sys.argv[1]) for e in json.load(sys.stdin)))' "$1"
}
shown() { ctl events; }

say "nothing has happened"
[[ -z $(shown) && $(ctl events -o json) == "[]" ]] || fail "there are events: $(shown)"

say "a program that exceeds its quota is named, and a watcher sees it"
VRDMA_RUN_DIR=$R "$BUILD/bin/vrdmactl" events -f >"$T/watch.log" 2>&1 &
PID[watch]=$!
for _ in 1 2 3; do
  spawn server a nobody ib_send_bw -F -d va -q 8
  wait_until 20 listens server || fail "the server does not listen"
  spawn client b nobody ib_send_bw -F -d vb -q 8 10.0.0.1
  reap server 20
  reap client 20
done
wait_until 10 has_event 'e["type"] == "quota" and e["vdev"] == "va" and e["tenant"] == "red" and e["pid"] > 0 and e["program"] == "ib_send_bw" and "more qp than the limit of 2" in e["reason"]' ||
  fail "the refusal is not there: $(shown)"
wait_until 10 grep -q 'quota .*/va tenant red .*more qp than the limit of 2' "$T/watch.log" || fail "the watcher sees: $(cat "$T/watch.log")"
[[ -z $(ctl events --since 2099-01-01) ]] || fail "--since shows what was before"
[[ -n $(ctl events --since 1h) ]] || fail "--since does not show what was then"
if ctl events --since yesterday 2>"$T/err"; then fail "--since yesterday is taken"; fi
grep -q "'yesterday' is no time such as 10m" "$T/err" || fail "it says: $(cat "$T/err")"

say "a program that ends of it, before vrdmad looks, is named"
cp "$1" "$T/lib/refused"
mkfifo "$T/go"
spawn refused a nobody "$T/lib/refused" va "$T/go"
wait_until 20 grep -q open "$T/refused.log" || fail "it does not open va: $(<"$T/refused.log")"
kill -STOP "$DAEMON"
echo >"$T/go"
reap refused 20
kill -CONT "$DAEMON"
[[ $REAPED -eq 0 ]] || fail "nothing was refused: $(<"$T/refused.log")"
wait_until 10 has_event 'e["type"] == "quota" and e["program"] == "refused"' || fail "it is not named: $(shown)"

say "a daemon that is killed has lost no more than its last seconds"
wait_until 10 test -s "$S/events" || fail "there is no file"
sleep 2.5
before=$(shown)
kill -9 "$DAEMON"
wait "$DAEMON" 2>/dev/null || true
wait "${PID[watch]}" && fail "the watcher does not notice"
hide_netns b
start_daemon
[[ $(shown | head -n "$(wc -l <<<"$before")") == "$before" ]] || fail "before the kill: $before; now: $(shown)"

say "a vdevice that is lost and found again, and one that ends with its netdev"
has_event 'e["type"] == "lost" and e["vdev"] == "vb" and e["tenant"] == "blue"' || fail "the loss is not there: $(shown)"
[[ $(ctl export) == *'quota = { mr = 77 }'* ]] || fail "an export forgets the quota of what is lost: $(ctl export)"
show_netns b
wait_until 40 has_event 'e["type"] == "restored" and e["vdev"] == "vb"' || fail "the restoration is not there: $(shown)"
ip_in a link del eth0
wait_until 10 has_event 'e["type"] == "deleted" and e["vdev"] == "va" and "netdev" in e["reason"]' || fail "the deletion is not there: $(shown)"

say "a worker that is killed, the session that goes on, and one that crashes workers"
if [[ -x $(dirname "$VRDMAD")/vrdmad-worker ]]; then
  netns_add c
  loose c eth0
  ip_in c address add 10.1.0.1/24 dev eth0
  vdev_create vc c eth0 --tenant green
  spawn server c nobody ib_send_bw -F -d vc
  wait_until 20 listens server || fail "the server does not listen"
  wait_until 20 is_served server || fail "no worker serves it"
  kill -9 "$(worker_of server)"
  wait_until 20 has_event 'e["type"] == "worker" and "green" in e["tenant"]' || fail "the worker's end is not there: $(shown)"
  wait_until 20 has_event 'e["type"] == "takeover" and e["vdev"] == "vc"' || fail "the takeover is not there: $(shown)"
  crash_workers server
  wait_until 20 has_event 'e["type"] == "ended" and e["vdev"] == "vc" and e["pid"] > 0 and "crash" in e["reason"]' ||
    fail "the end of the session is not there: $(shown)"
  kill_programs server
fi

say "they survive a stop, too"
before=$(shown)
stop_daemon
start_daemon
[[ $(shown | head -n "$(wc -l <<<"$before")") == "$before" ]] || fail "before the stop: $before; now: $(shown)"
