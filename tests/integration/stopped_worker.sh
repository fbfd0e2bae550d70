#!/bin/bash
# stopped_worker.sh: while a worker does not run, the daemon answers all that does not change a vdevice.
#
#     netns a           netns b
#   +------------+   +------------+
#   | va -- eth0 |   | vb -- eth0 |   the worker of va stopped
#   +------------+   +------------+
. "$(dirname "$0")/lib.sh"
setup
need_worker_processes
start_daemon --metrics "unix:$T/metrics.sock"
netns_add a b
loose a eth0
loose b eth0
ip_in a address add 10.0.0.1/24 dev eth0
vdev_create va a eth0 --quota qp=8
vdev_create vb b eth0
# Its worker is asked for counters, because it has a queue pair.
spawn sleeper a nobody ibv_rc_pingpong -d va -g 0
has_queue_pair() { [[ $(ctl quota show va) =~ qp\ +1\ +8 ]]; }
wait_until 10 has_queue_pair || fail "the queue pair is not counted"

worker=$(workers)
[[ $worker == +([0-9]) ]] || fail "there are the workers '$worker'"
kill -STOP "$worker"

say "lists, counters, quotas and metrics are there soon"
# soon COMMAND...: its words are in $T/answer.log. A change that needs the worker waits for 5 s, counters for 2 s.
soon() {
  local begun took=0 _
  for _ in 1 2 3; do
    begun=${EPOCHREALTIME/./}
    "$@" >"$T/answer.log" || fail "$* fails"
    took=$((${EPOCHREALTIME/./} - begun))
    [[ $took -ge 4500000 ]] || return 0
  done
  fail "$* took $took us"
}
said() { grep -qE "$1" "$T/answer.log"; }
soon ctl vdev list
said va || fail "va is not listed"
soon ctl quota show va
said 'qp +1 +8' || fail "va has no quota"
soon ctl stats va
said 'sessions +1' || fail "va's session is not counted"
soon curl -sS --fail --max-time 10 --unix-socket "$T/metrics.sock" http://vrdma/metrics
said '^vrdma_sessions\{vdevice="va".* 1$' || fail "Prometheus has no session of va"

say "the vdevice of another tenant is served"
LIMIT=20 on b root ibv_devinfo -d vb >/dev/null || fail "vb cannot be opened"

say "a change fails with one sentence, and changes nothing"
if ctl quota set va qp=9 2>"$T/change.log"; then fail "the quota is set"; fi
grep -q "the worker of vdevice .*va is busy: the quota is unchanged" "$T/change.log" || fail "$(<"$T/change.log")"
if ctl quota show --cgroup 2>"$T/cgroup.log"; then fail "the use of control groups is known"; fi
grep -q "the worker of vdevice va is busy" "$T/cgroup.log" || fail "$(<"$T/cgroup.log")"

say "counters wait a little for a worker that is late, and this one goes on"
{ sleep 0.3; touch "$T/goes-on"; kill -CONT "$worker"; } &
late=$!
ctl stats va >/dev/null || fail "va has no counters"
[[ -e $T/goes-on ]] || fail "the counters do not wait for the worker"
wait $late
LIMIT=20 on a root ibv_devinfo -d va >/dev/null || fail "va cannot be opened"
ctl quota show va | grep -qE 'qp +1 +8' || fail "the quota has changed"
ctl quota set va qp=9 || fail "the quota cannot be changed"
ctl quota show va | grep -qE 'qp +1 +9' || fail "the quota has not changed"
kill "${PID[sleeper]}"
reap sleeper 5

say "a change that meets the end of an idle worker succeeds"
worker=$(workers)
kill -STOP "$worker"
# Each attempt waits for the worker; one of them until its idle time is over.
until ctl quota set va qp=10 2>"$T/change.log"; do
  if ended "$worker"; then fail "a worker that has ended is called busy: $(<"$T/change.log")"; fi
done
ctl quota show va | grep -qE 'qp +0 +10' || fail "the quota has not changed"
