#!/bin/bash
# roce_kills.sh MOMENTS FLOW [SEED]: two daemons, as on two hosts, whose processes are killed at random moments while
# programs exchange data by packets of RoCE v2 and check all of it.
#
#   daemon a                           daemon b
#   +-----------------+                +-----------------+
#   | va -- eth0      |      veth      |      eth0 -- vb |
#   |       10.0.0.1  |================|  10.0.0.2       |
#   +-----------------+                +-----------------+
#
# Each moment ends processes of one side or of both: the worker, control, the broker, or all at once. A worker is
# replaced by control; when control has ended, the script starts that daemon again, as a service manager does. The test
# prints the longest time in which a program got nothing, by what was killed. A SEED gives the same choices again.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/flows.sh"
. "$(dirname "$0")/wire.sh"
setup
need_worker_processes
begin_moments "$@"

ENVIRONMENT+=(FLOW_TIMEOUT="${FLOW_TIMEOUT:-17}")
declare -A GAPS=() TIMES=()
netns_add a b
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
two_daemons

port=18620
for how in ${HOWS:-all shared datagrams}; do
  side a
  HOW=$how begin_flow_end "$how-a" a va 10.0.0.1 $port
  wait_until 20 listens "$how-a" $port || fail "$how-a does not listen"
  side b
  HOW=$how begin_flow_end "$how-b" b vb 10.0.0.2 $port 10.0.0.1
  port=$((port + 1))
done
flows_go_on "before the first moment"
longest_gap >/dev/null

# kill_in SIDE worker|control|broker|all
kill_in() {
  local kind=$2 victims=()
  side "$1"
  case $kind in
    worker) victims=($(workers)) ;;
    control) victims=("$DAEMON") ;;
    broker) victims=($(helper broker)) ;;
    all) victims=("$DAEMON" $(helper broker) $(helper intake) $(helper stopper) $(workers)) ;;
  esac
  [[ ${#victims[@]} -gt 0 ]] || return 0  # it is not there at this moment
  kill -KILL "${victims[@]}" 2>/dev/null || true
  TIMES[$kind]=$((${TIMES[$kind]:-0} + 1))
  [[ $kind != worker ]] || return 0
  wait_until 20 ended "$DAEMON" || fail "$AT: control goes on"
  wait "$DAEMON" 2>/dev/null || true
  launch_daemon
}
answers_everywhere() {
  local end
  for end in a b; do
    side $end
    daemon_answers || return 1
  done
}

read -ra KINDS <<<"${KINDS:-worker worker control broker all}"
for ((number = 1; number <= moments; ++number)); do
  kind=${KINDS[RANDOM % ${#KINDS[@]}]}
  ENDS=(a b)
  sides=("${ENDS[RANDOM % 2]}")
  if ((RANDOM % 4 == 0)); then sides=(a b); fi
  printf -v delay '0.%03d' $((RANDOM % 250))
  AT="seed $seed, moment $number: $kind of ${sides[*]} after $delay s"
  sleep "$delay"
  for end in "${sides[@]}"; do kill_in "$end" "$kind"; done
  wait_until 20 answers_everywhere || fail "$AT: vrdmad does not answer on its admin socket"
  flows_go_on "$AT"
  gap=$(longest_gap)
  [[ ${#sides[@]} -eq 1 ]] || kind="$kind of both"
  [[ $gap -le ${GAPS[$kind]:-0} ]] || GAPS[$kind]=$gap
done
AT="seed $seed, after the last moment"
end_flows "$AT"

say "rdma_cm: a connection goes on, a listener is there again, and datagrams come"
side a
listening_server a root rping -s -a 10.0.0.1 -V -C 3000
side b
spawn client b root rping -c -a 10.0.0.1 -V -C 3000
# A program that starts without a daemon has no device.
begun() { ended "${PID[client]}" || [[ $(ctl conn list vb) == *ESTABLISHED* ]]; }
wait_until 20 begun || fail "rping does not connect: $(<"$T/client.log")"
for kill in "a worker" "b worker" "a control" "b control"; do
  sleep 0.3
  kill_in $kill
  wait_until 20 answers_everywhere || fail "rdma_cm: vrdmad does not answer"
done
both_end_well rping
side a
listening_server a root udaddy -b 10.0.0.1
kill_in a control
kill_in b all
wait_until 20 answers_everywhere || fail "rdma_cm: vrdmad does not answer"
side a
wait_until 20 listening va || fail "udaddy does not listen any more: $(<"$T/server.log")"
side b
spawn client b root udaddy -s 10.0.0.1
both_end_well udaddy
for kind in "${!GAPS[@]}"; do say "killed: $kind; longest gap: ${GAPS[$kind]} ms"; done
say "kills: $(for kind in "${!TIMES[@]}"; do echo -n "$kind ${TIMES[$kind]}, "; done)"
no_sessions() { [[ $(ctl vdev list -o json | grep -c '"sessions": 0,') -eq 1 ]] && no_session_files; }
for end in a b; do
  side $end
  wait_until 10 no_sessions || fail "$AT: sessions are left: $(ctl vdev list; ls "$R/state")"
done
stop_daemons
