#!/bin/bash
# hangs.sh PROGRAM: descriptors whose close(2) takes as long as their sender chooses, beside
# messages of all kinds, block neither the worker nor the control thread, create no threads in the
# daemon, and do not block operators. A cgroup limits the daemon's tasks, as TasksMax= does.
. "$(dirname "$0")/../lib.sh"
setup
program=$1
start_daemon
two_vdevices mediated
socket=$(socket_of va)
cp "$program" "$T/hangs"

group=/sys/fs/cgroup
[[ ! -d $group/pids ]] || group+=/pids
group+=/vrdma-$$
limited=
if mkdir "$group" 2>/dev/null && [[ -w $group/pids.max ]]; then limited=yes; fi
ungroup() {
  [[ -n $limited ]] || return 0
  echo max >"$group/pids.max"
  cat "$group/cgroup.procs" | while read -r pid; do echo "$pid" >"${group%/*}/cgroup.procs"; done
  rmdir "$group"
}
trap 'status=$?; ungroup 2>/dev/null; finish $status "$BASH_COMMAND"' EXIT
if [[ -n $limited ]]; then
  echo 200 >"$group/pids.max"
  echo "$DAEMON" >"$group/cgroup.procs"
fi

threads() { ls "/proc/$DAEMON/task" | wc -l; }
counter() { ctl counters vdev/vb 2>/dev/null || true; }
before=$(threads)
spawn attacker a nobody "$T/hangs" send "$socket" 300 20
sent() { grep -q '^sent$' "$T/attacker.log"; }
wait_until 60 sent || fail "the descriptors were not sent"
say "sent; threads of the daemon: $before, then $(threads)"

# The neighbour's requests are answered meanwhile.
for _ in 1 2 3 4 5; do
  LIMIT=10 on b root ibv_devinfo -d vb >"$T/neighbour.log" 2>&1 || fail "the neighbour is not served"
  [[ $(threads) -le $((before + 24)) ]] || fail "$(threads) threads of the daemon; before: $before"
  sleep 0.5
done
# No thread of the daemon is in close(2) of a tenant's socket or file.
if cat /proc/"$DAEMON"/task/*/stack 2>/dev/null | grep -E '__tcp_close|fuse_flush|fuse_release'; then
  fail "a thread of the daemon closes what a tenant made"
fi
ctl vdev list >/dev/null || fail "an operator is not answered"

# The daemon refuses an operator while no thread can be created, and survives.
if [[ -n $limited ]]; then
  for more in 0 1 2 4 8 12 16 20; do
    tasks=$(cat "$group/pids.current")
    echo $((tasks + more)) >"$group/pids.max"
    VRDMA_RUN_DIR=$R timeout 3 "$BUILD/bin/vrdmactl" vdev list >"$T/operator.log" 2>&1 || true
    ended "$DAEMON" && fail "the daemon ended when $more more tasks were allowed"
  done
  echo max >"$group/pids.max"
  wait_until 20 ctl vdev list >/dev/null || fail "an operator is not answered any more"
fi
kill -9 "${PID[attacker]}"
kill_all_in "$(ns a)"
unset "PID[attacker]"
LIMIT=10 on b root ibv_devinfo -d vb >"$T/neighbour.log" 2>&1 || fail "the neighbour is not served"
