#!/bin/bash
# worker_groups.sh: each worker has a control group, which limits it, and no group is left when it has ended.
#
#   +-----------+           +-----------+
#   | va -- eth0|           |eth0 -- vb |   of tenant red
#   | wa -- eth0|===========|eth0 -- wb |   of tenant blue
#   +-----------+           +-----------+
. "$(dirname "$0")/lib.sh"
setup
WORKERS_END=1  # because they are killed
need_worker_processes
GROUP=/vr$$
if [[ -d /sys/fs/cgroup/pids ]]; then
  PARENTS=(/sys/fs/cgroup/cpu$GROUP /sys/fs/cgroup/pids$GROUP)
elif grep -qsw pids /sys/fs/cgroup/cgroup.subtree_control; then
  PARENTS=(/sys/fs/cgroup$GROUP)
else
  skip "there are no control groups with the controller pids"
fi
# Removes what the test has made; after a failure its workers must end before.
remove_groups() { # exit status of the test
  [[ $1 -eq 0 || -z $DAEMON ]] || kill -9 "$DAEMON"
  wait_until 5 no_groups
  find "${PARENTS[@]}" -depth -type d -exec rmdir {} +
}
trap 'status=$?; command=$BASH_COMMAND; set +e; remove_groups "$status" 2>/dev/null; finish "$status" "$command"' EXIT

start() { start_daemon --cgroup "$GROUP"; }
groups() { find "${PARENTS[@]}" -mindepth 1 -type d -printf '%f\n' | sort -u; }
no_groups() { [[ -z $(groups) ]]; }
# group_of PID: the name of its group, the same in each hierarchy.
group_of() { sed -n "s|.*:$GROUP/||p" "/proc/$1/cgroup" | sort -u; }
both_served() { [[ -n $(worker_of red-client) && -n $(worker_of blue-client) ]]; }

say "a path that is none is refused"
if "$VRDMAD" --cgroup here --run-dir "$R" --state-dir "$S" 2>"$T/err"; then fail "it starts"; fi
grep -q "'here' is neither the path of a control group nor none" "$T/err" || fail "it says: $(<"$T/err")"

start
grep "worker processes have control groups in ${PARENTS[0]}" "$T/vrdmad.log" || fail "the log does not say where groups are"
two_vdevices direct --no-direct
vdev_create wa a eth0 --tenant blue --no-direct
vdev_create wb b eth0 --tenant blue --no-direct

say "each tenant's worker is in a group"
spawn_writes red va vb 18515 300
spawn_writes blue wa wb 18516 300
wait_until 20 both_served || fail "the tenants have no workers"
red=$(worker_of red-client) blue=$(worker_of blue-client)
[[ $(group_of "$red") == worker-* ]] || fail "the worker of red is in the group $(group_of "$red")"
[[ $(group_of "$blue") == worker-* ]] || fail "the worker of blue is in the group $(group_of "$blue")"
[[ $(group_of "$red") != "$(group_of "$blue")" ]] || fail "both are in the same group"
for parent in "${PARENTS[@]}"; do
  directory=$parent/$(group_of "$red")
  [[ $(<"$directory/cgroup.procs") == "$red" ]] || fail "in $directory are $(xargs <"$directory/cgroup.procs")"
  for limit in "$directory"/{pids.max,memory.max,memory.swap.max}; do
    [[ ! -e $limit ]] || echo "   $limit: $(<"$limit")"
  done
done
[[ $(cat "${PARENTS[-1]}/$(group_of "$red")/pids.max") -eq 2048 ]] || fail "the number of its threads is not limited"
for name in broker intake stopper; do
  [[ -z $(group_of "$(helper $name)") ]] || fail "the $name is in the group $(group_of "$(helper $name)")"
done
[[ -z $(group_of "$DAEMON") ]] || fail "the daemon is in the group $(group_of "$DAEMON")"

say "processor time of one busy thread in red's group, and of eight in blue's, on the same processor"
burn() { # NAME WORKER: in the group of the worker
  local group
  group=$(group_of "$2")
  taskset -c 0 sh -c 'while :; do :; done' &
  PID[$1]=$!
  for parent in "${PARENTS[@]}"; do echo "${PID[$1]}" >"$parent/$group/cgroup.procs"; done
}
burn burns "$red"
for i in 1 2 3 4 5 6 7 8; do burn "burns$i" "$blue"; done
used() { for name in "$@"; do cat "/proc/${PID[$name]}/stat"; done | awk '{ sum += $14 + $15 } END { print sum }'; }
before=$(used burns) all_before=$(used burns{,1,2,3,4,5,6,7,8})
sleep 3
after=$(used burns) all_after=$(used burns{,1,2,3,4,5,6,7,8})
echo "   the one thread has $((100 * (after - before) / (all_after - all_before))) % of what all nine have"
for name in burns{,1,2,3,4,5,6,7,8}; do
  kill -9 "${PID[$name]}"
  { wait "${PID[$name]}"; } 2>/dev/null || true
  unset "PID[$name]"
done

say "a worker that replaces another has a group, and that of the other is removed"
old=$(group_of "$red")
kill -9 "$red"
replaced() { [[ -n $(worker_of red-client) && $(worker_of red-client) != "$red" ]]; }
wait_until 10 replaced || fail "no other worker takes over the sessions of red"
red=$(worker_of red-client)
two_groups() { [[ $(groups) == "$({ group_of "$red"; group_of "$blue"; } | sort)" ]]; }
wait_until 10 two_groups || fail "after $old there are the groups $(groups | xargs)"

say "the next daemon removes what killed ones have left"
mapfile -t processes < <(echo "$DAEMON"; pgrep -P "$DAEMON"; workers)
kill -STOP "${processes[@]}"  # so that none of them removes what another leaves
kill -9 "${processes[@]}"
wait "$DAEMON" 2>/dev/null || true
DAEMON=
for process in "${processes[@]}"; do wait_until 10 ended "$process" || fail "process $process does not end"; done
before=$(groups)
[[ -n $before ]] || fail "nothing is left, so the test tests nothing"
start
wait_until 20 both_served || fail "the sessions are not taken over"
red=$(worker_of red-client) blue=$(worker_of blue-client)
wait_until 10 two_groups || fail "of $(xargs <<<"$before") these groups are left: $(groups | xargs)"

say "nothing is left after the end"
stop_daemon
wait_until 10 no_groups || fail "these groups are left: $(groups | xargs)"
for name in red blue; do
  for end in client server; do
    kill -9 "${PID[$name-$end]}"
    reap "$name-$end" 10
  done
done

say "without the option, in a group that is not delegated, there are no groups"
start_daemon
grep -q "have no control groups, because that of vrdmad is not delegated" "$T/vrdmad.log" ||
  skip "this test runs in a group that is delegated"
LIMIT=20 on a nobody ibv_devinfo -d va >/dev/null || fail "va cannot be opened"
no_groups || fail "there are the groups $(groups | xargs)"
