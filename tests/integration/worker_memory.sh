#!/bin/bash
# worker_memory.sh WORKER FLOW: the kernel kills a worker that needs more memory than its control group may have
# (version 2). The log says whose it was, and what the limit is. It counts as a crash: the next worker takes its sessions over. The
# programs of others do not notice.
#
#   +-----------+           +-----------+
#   | ra -- eth0|           |eth0 -- rb |   of tenant red: a flow, and programs that write 48,880 bytes,
#   | ba -- eth0|===========|eth0 -- bb |   of tenant blue: a flow              the greed of WORKER (poison.cc)
#   +-----------+           +-----------+
#
# tests/interop/other_kernel runs it in a machine that has such control groups.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/flows.sh"
setup
WORKERS_END=1  # because they are killed
grep -qsw memory /sys/fs/cgroup/cgroup.subtree_control || skip "there are no control groups with the controller memory"
GROUP=/vr$$
no_groups() { [[ -z $(find "/sys/fs/cgroup$GROUP" -mindepth 1 -type d) ]]; }
remove_group() { # exit status of the test
  [[ $1 -eq 0 || -z $DAEMON ]] || kill -9 "$DAEMON"
  wait_until 5 no_groups
  rmdir "/sys/fs/cgroup$GROUP"
}
trap 'status=$?; command=$BASH_COMMAND; set +e; remove_group "$status" 2>/dev/null; finish "$status" "$command"' EXIT
cp "$2" "$T/lib/flow"
other_worker "$1"
start_daemon --cgroup "$GROUP"
red_and_blue

begin_flow red ra rb 18520
begin_flow blue ba bb 18521
flows_go_on "before"
red=$(worker_of red-a) blue=$(worker_of blue-a)
directory=/sys/fs/cgroup$(sed 's/^0:://' "/proc/$red/cgroup")
limit=$(<"$directory/memory.max")
memory=$(awk '$1 == "MemTotal:" { print $2 * 1024 }' /proc/meminfo)
say "limits of the worker: memory.max $limit of $memory bytes, memory.swap.max $(<"$directory/memory.swap.max")"
[[ $limit -gt $((memory / 5)) && $limit -lt $((memory / 3)) ]] || fail "memory.max is not a quarter of the memory"
say "used by it: $(<"$directory/memory.current") bytes"

say "a worker of red takes all memory that it can have"
longest_gap >/dev/null
red_writes 1 18522 48880
killed="error the kernel has killed the worker of tenant/red: it needed more than its $((limit >> 20)) MiB of memory"
wait_until 60 has_logged 1 "$killed" || fail "no line of the log names the tenant and the limit of $limit bytes"
grep 'tenant/red' "$T/vrdmad.log"
ended "$red" || fail "the worker of red lives"

say "the next workers take its request over, and it kills them too, until all sessions of red end"
wait_until 100 has_logged 1 ' warning all sessions of tenant/red end: its worker crashed three times within a minute$' ||
  fail "the sessions of red do not end after $(logged "$killed") workers"
say "the kernel has killed $(logged "$killed") of $(logged 'the worker of tenant/red is lost') workers"
only_red_failed target1 writer1 red-a red-b
say "the longest gap of blue: $(longest_gap) ms"
has_logged 0 'worker of tenant/blue' || fail "blue is harmed"
end_flows "in the end"
stop_daemon
remove_group 0
