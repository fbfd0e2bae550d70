#!/bin/bash
# kills.sh MOMENTS FLOW [SEED]: kills processes of the daemon at random moments. Four pairs of programs go on all
# the while, and check their data and completions; in the end nothing is left.
#
#   +-----------+           +-----------+
#   | ra -- eth0|           |eth0 -- rb |   of tenant red, mediated
#   | ba -- eth0|===========|eth0 -- bb |   of tenant blue, mediated, with memory that is reached
#   | ga -- eth0|           |eth0 -- gb |   of tenant green, direct
#   | wa -- eth0|           |eth0 -- wb |   of tenant white, with direct links and memory that is reached
#   +-----------+           +-----------+
#
# Each moment ends one process or two: workers, control, the broker, the intake or the stopper. A worker is replaced
# by control. When control has ended, the script starts the daemon again, as a service manager does. Then it usually
# waits until all programs have gone on; otherwise the next moment may be one of the takeover. A SEED gives the same
# choices again.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/flows.sh"
setup
need_worker_processes
begin_moments "$@"
start_daemon
netns_add a b
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
TENANTS=(red blue green white)
for tenant in "${TENANTS[@]}"; do
  [[ $tenant == @(green|white) ]] && how=() || how=(--no-direct)
  vdev_create "${tenant:0:1}a" a eth0 --tenant "$tenant" "${how[@]}"
  vdev_create "${tenant:0:1}b" b eth0 --tenant "$tenant" "${how[@]}"
done

# ---- the processes ------------------------------------------------------------------------------
declare -A CRASHED=()  # tenants whose worker has crashed since control was started
declare -A TIMES=()    # kills by kind
SEEN=()                # all processes that were killed, and when they began
ENDS=                  # the daemon must end
began() { awk '{ print $22 }' "/proc/$1/stat" 2>/dev/null || true; }
victim() { # KIND: its process id, or nothing
  case $1 in
    control) echo "$DAEMON" ;;
    broker | intake | stopper) helper "$1" ;;
    *) worker_of "${1#*/}-a" ;;
  esac
}
# kill_all KIND...: worker/TENANT, crash/TENANT, control, broker, intake, stopper. After two crashes with one session
# in hand that session would end, so a worker crashes once for each life of control, and otherwise is killed.
kill_all() {
  local kind tenant signal pid order orders=()
  for kind in "$@"; do
    tenant=${kind#*/} signal=KILL
    if [[ $kind == crash/* && -n ${CRASHED[$tenant]:-} ]]; then kind=worker/$tenant; fi
    if [[ $kind == crash/* ]]; then signal=SEGV CRASHED[$tenant]=1; fi
    pid=$(victim "$kind")
    if [[ -n $pid ]]; then orders+=("${kind%/*} $signal $pid"); fi  # otherwise it is not there at this moment
  done
  for order in "${orders[@]}"; do
    read -r kind signal pid <<<"$order"
    SEEN+=("$pid $(began "$pid")")
    kill -"$signal" "$pid" 2>/dev/null || continue
    TIMES[$kind]=$((${TIMES[$kind]:-0} + 1))
    if [[ $kind == @(control|broker|intake|stopper) ]]; then ENDS=1; fi
    if [[ $kind == control ]]; then wait "$pid" 2>/dev/null || true; fi
  done
}
# The daemon ends without one of its helpers.
restart_if_it_ends() {
  [[ -n $ENDS ]] || return 0
  ENDS=
  wait_until 20 ended "$DAEMON" || fail "$AT: control goes on"
  wait "$DAEMON" 2>/dev/null || true
  CRASHED=()
  launch_daemon
}

KINDS=(worker/red worker/blue worker/green worker/white crash/red crash/blue crash/green crash/white control broker intake stopper)

# The broker has what it needs for workers from the first one on.
LIMIT=20 on a nobody ibv_devinfo -d ra >/dev/null || fail "ra cannot be opened"
workers | xargs kill -9
no_workers() { [[ -z $(workers) ]]; }
wait_until 10 no_workers || fail "idle workers that are killed are replaced"
rest=$(holdings)
port=18520
for tenant in "${TENANTS[@]}"; do
  ENVIRONMENT_OF_ALL=("${ENVIRONMENT[@]}")
  [[ $tenant != @(blue|white) ]] || ENVIRONMENT+=(VRDMA_MEMORY=reached)
  begin_flow "$tenant" "${tenant:0:1}a" "${tenant:0:1}b" $((port++))
  ENVIRONMENT=("${ENVIRONMENT_OF_ALL[@]}")
done
flows_go_on "before the first moment"
for ((number = 1; number <= moments; ++number)); do
  victims=("${KINDS[RANDOM % ${#KINDS[@]}]}")
  if ((RANDOM % 4 == 0)); then victims+=("${KINDS[RANDOM % ${#KINDS[@]}]}"); fi
  printf -v delay '0.%03d' $((RANDOM % 250))
  hurry=$((RANDOM % 4 == 0))
  AT="seed $seed, moment $number: ${victims[*]} after $delay s"
  sleep "$delay"
  kill_all "${victims[@]}"
  restart_if_it_ends
  if ((!hurry)); then
    wait_until 20 daemon_answers || fail "$AT: vrdmad does not answer on its admin socket"
    flows_go_on "$AT"
  fi
done
AT="seed $seed, after the last moment"
wait_until 20 daemon_answers || fail "$AT: vrdmad does not answer on its admin socket"
flows_go_on "$AT"
for tenant in "${TENANTS[@]}"; do
  direct=$(ctl stats "${tenant:0:1}a" | awk '$2 == "work_requests_direct" { n += $3 } END { print n ? "direct" : "mediated" }')
  [[ $tenant:$direct == @(red:mediated|blue:mediated|green:direct|white:mediated) ]] || fail "$AT: the requests of $tenant are $direct"
done

say "the programs end, and nothing is left"
end_flows "$AT"
no_sessions() { [[ $(ctl vdev list -o json | grep -c '"sessions": 0,') -eq 8 ]] && no_session_files; }
wait_until 10 no_sessions || fail "$AT: sessions are left: $(ctl vdev list; ls "$R/state")"
wait_until 20 no_workers || fail "$AT: there are the workers $(workers)"
wait_until 30 holds_only "$rest" || fail "$AT: vrdmad held [$rest], now holds [$(holdings)]"
stop_daemon
for process in "${SEEN[@]}"; do
  read -r pid begun <<<"$process"
  ended "$pid" || [[ $(began "$pid") != "$begun" ]] || fail "$AT: process $pid of the daemon is left"
done
if find /proc/[0-9]*/fd -lname "$R/*" 2>/dev/null | grep .; then fail "$AT: processes use the run directory"; fi
if grep " $T/" /proc/self/mounts; then fail "$AT: mounts are left"; fi
if find "$R" ! -type d | grep .; then fail "$AT: files are left in the run directory"; fi
total=0
for kind in "${!TIMES[@]}"; do
  say "$kind: ${TIMES[$kind]} times"
  total=$((total + TIMES[$kind]))
done
say "passed: $moments moments, $total kills, seed $seed"
