#!/bin/bash
# integrity.sh PROGRAM MODE SECONDS [ACCIDENT...]: random verbs between two or more programs, which predict every byte of
# every buffer and count every completion (README.md here).
#
#   direct     two programs of one tenant           mediated  of two tenants in one fabric
#   network    in two fabrics, as on two hosts      all       four: a peer of each kind to the first one
#
# Accidents go on all the while:
#
#   kill   processes of the daemon are killed: an atomic in doubt, and nothing else, may fail
#   stop   they are stopped for a moment          peer   a member is killed, and started again
#   fork   members fork                           quota  a bandwidth quota comes and goes
#   port   a netdev goes down for a moment
#   loss   the link loses, reorders, repeats and damages packets (network)
#
# "reached" is no accident: vrdmad reaches all memory of the members, none is in place.
#
# A failure prints seed, epoch and batch. VRDMA_SEED repeats a run but for its timing, so try some times; VRDMA_EPOCH
# begins with an epoch, VRDMA_WITHOUT leaves out parts of the plan (kPartNames in plan.h).
. "$(dirname "$0")/../integration/lib.sh"
setup
program=$(realpath "$1") mode=$2 seconds=$3
shift 3
accidents=() options=(--from "${VRDMA_EPOCH:-0}") wire=() environment=()
for word in ${VRDMA_WITHOUT:-}; do options+=(--without "$word"); done
for word in "$@"; do
  case $word in
    kill) options+=(--kills) WORKERS_END=1 ;;
    fork) options+=(--forks) ;;
    loss) options+=(--lossy) wire=(--loss 1 --reorder 3 --duplicate 1 --corrupt 0.5) ;;
    reached) environment=(env VRDMA_MEMORY=reached) ;;
    peer) options+=(--deaths) ;;
    stop | quota | port) ;;
    *) fail "'$word' is no accident" ;;
  esac
  if [[ $word != @(fork|loss|reached) ]]; then accidents+=("$word"); fi
done
[[ ${#wire[@]} -eq 0 || $mode == network ]] || fail "loss is of the network"
if [[ " $* " == *" "@(kill|stop)" "* ]]; then need_worker_processes; fi
start_daemon
seed=${VRDMA_SEED:-$RANDOM$RANDOM}
install -m 755 "$program" "$T/integrity"

# va and vb of one tenant, vc of another one in the same fabric, vd in another fabric: all on one bridge.
four_members() {
  local number=1 space
  netns_add bridge a b c d
  ip_in bridge link add name lan mtu 4200 type bridge
  ip_in bridge link set lan up
  for space in a b c d; do
    ip_in $space link add eth0 mtu 4200 type veth peer name to-$space netns "$(ns bridge)"
    ip_in $space address add 10.0.0.$number/24 dev eth0
    ip_in $space link set eth0 up
    ip_in bridge link set to-$space mtu 4200 master lan up
    number=$((number + 1))
  done
  vdev_create va a eth0 --tenant red --fabric shared --addresses 0.0.0.0/0,::/0
  vdev_create vb b eth0 --tenant red --fabric shared --addresses 0.0.0.0/0,::/0
  vdev_create vc c eth0 --tenant blue --fabric shared --addresses 0.0.0.0/0,::/0
  vdev_create vd d eth0 --tenant green --fabric other --addresses 0.0.0.0/0,::/0
  ctl fabric set shared --reach network >/dev/null
  ctl fabric set other --reach network >/dev/null
}

# two_hosts whose link loses packets.
bad_hosts() {
  local number=1 space
  [[ -w /dev/net/tun ]] || skip "there is no /dev/net/tun, to make taps"
  netns_add a b
  bad_wire --seed "$seed" "${wire[@]}"
  for space in a b; do
    ip_in $space address add 10.0.0.$number/24 dev eth0
    ip_in $space link set eth0 up
    number=$((number + 1))
  done
  vdevices_of_two_hosts
}

case $mode in
  direct | mediated)
    two_vdevices "$mode"
    if [[ " $* " != *" port "* ]]; then options+=(--unreliable); fi  # a port that is down drops datagrams
    members=("a va $INDEX_A" "b vb $INDEX_B")
    ;;
  network)
    if [[ ${#wire[@]} -gt 0 ]]; then bad_hosts; else two_hosts; fi
    members=("a va $(gid_index a va 10.0.0.1)" "b vb $(gid_index b vb 10.0.0.2)")
    ;;
  all)
    four_members
    members=("a va $(gid_index a va 10.0.0.1)" "b vb $(gid_index b vb 10.0.0.2)" "c vc $(gid_index c vc 10.0.0.3)"
      "d vd $(gid_index d vd 10.0.0.4)")
    ;;
  *) fail "'$mode' is no mode" ;;
esac

# ---- accidents ----------------------------------------------------------------------------------
declare -A HAPPENED=()
any_of() { if [[ $# -gt 0 ]]; then echo "${@:RANDOM % $# + 1:1}"; fi; }
pause() { sleep "0.$(printf '%03d' $((RANDOM % $1)))"; } # less than so many ms
# process_of_daemon: the id of one, a worker more often than others.
process_of_daemon() {
  case $((RANDOM % 8)) in
    0) echo "$DAEMON" ;;
    1) helper broker ;;
    2) helper intake ;;
    3) helper stopper ;;
    *) any_of $(workers) ;;
  esac
}
# Kills one. The daemon ends without one of its helpers, and is started again as by a service manager.
accident_kill() {
  local pid name
  pid=$(process_of_daemon)
  [[ -n $pid ]] || return 0
  name=$(cat "/proc/$pid/comm" 2>/dev/null) || return 0
  kill -9 "$pid" 2>/dev/null || return 0
  HAPPENED[kill $name]=$((${HAPPENED[kill $name]:-0} + 1))
  if [[ $name != vrdmad-worker ]]; then wait_until 20 ended "$DAEMON" || fail "control goes on without $name"; fi
  if ended "$DAEMON"; then
    wait "$DAEMON" 2>/dev/null || true
    launch_daemon
    wait_until 20 serves_or_ended || fail "vrdmad does not answer"
  fi
}
accident_stop() {
  local pid
  pid=$(process_of_daemon)
  [[ -n $pid ]] && kill -STOP "$pid" 2>/dev/null || return 0
  pause 300
  kill -CONT "$pid" 2>/dev/null || true
}
accident_peer() {
  local number=$((RANDOM % ${#members[@]}))
  kill -9 "${PID[member$number]}" 2>/dev/null || return 0
  wait "${PID[member$number]}" 2>/dev/null || true
  cp "$T/member$number.log" "$T/member$number.before.log"
  pause 300
  join_run "$number"
}
accident_quota() {
  ctl quota set va bandwidth=$((RANDOM % 900 + 100))m >/dev/null
  pause 500
  ctl quota set va bandwidth=max >/dev/null
}
accident_port() {
  local space device index
  read -r space device index <<<"$(any_of "${members[@]}")"
  ip_in "$space" link set eth0 down
  pause 100  # a queue pair gives up after 540 ms
  ip_in "$space" link set eth0 up
}

# ---- the run ------------------------------------------------------------------------------------
say "VRDMA_SEED=$seed $mode $*"
spawn meeting a root "$T/integrity" serve "$T/meeting" "${#members[@]}" "$seconds"
wait_until 10 grep -qs ready "$T/meeting.log" || fail "the members cannot meet: $(<"$T/meeting.log")"
join_run() { # NUMBER
  local space device index
  read -r space device index <<<"${members[$1]}"
  spawn "member$1" "$space" nobody "${environment[@]}" "$T/integrity" join "$T/meeting" "$1" "${#members[@]}" \
    "$device" "$index" "$seed" "${options[@]}"
}
for number in "${!members[@]}"; do join_run "$number"; done
# They end together; one that fails ends alone.
one_has_ended() {
  local number
  for number in "${!members[@]}"; do
    if ended "${PID[member$number]}"; then return 0; fi
  done
  return 1
}
last=$((SECONDS + seconds - 2))
while [[ $SECONDS -lt $last && ${#accidents[@]} -gt 0 ]] && ! one_has_ended; do
  pause 700
  accident=$(any_of "${accidents[@]}")
  accident_$accident
  HAPPENED[$accident]=$((${HAPPENED[$accident]:-0} + 1))
done
wait_until $((seconds + 100)) one_has_ended || fail "VRDMA_SEED=$seed: the run does not end"
if grep -hs FAILED "$T"/member?.log; then
  for member in "${members[@]}"; do
    read -r _ device _ <<<"$member"
    ctl stats "$device" | awk '$NF > 0 && /error|nak|exceeded|retr|timeout|dropped|doubt/'
  done
  fail "VRDMA_SEED=$seed: $(cat "$T"/member?.log)"
fi
for number in "${!members[@]}"; do
  reap "member$number" 20
  [[ $REAPED -eq 0 ]] || fail "VRDMA_SEED=$seed: member $number ends with status $REAPED: $(cat "$T"/member?.log)"
  no_sanitizer integrity "$T/member$number.log"
done
reap meeting 10
for accident in "${!HAPPENED[@]}"; do say "$accident: ${HAPPENED[$accident]} times"; done
for number in "${!members[@]}"; do sed "s/^/member $number: /" "$T/member$number.log"; done
