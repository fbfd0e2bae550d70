#!/bin/bash
# sweep.sh MOMENTS: kills vrdmad or either program at random moments. Acknowledged changes are
# present after the next start, surviving programs are notified, and in the end nothing is left.
#
#      netns a                    netns b                  netns c
#   va eth0 10.0.0.1 ======== 10.0.0.2 eth0 vb         eth0 .. eth7: x0 .. x7
#   rping -s                        rping -c           created and deleted without a pause
#
# The programs connect, register and exchange data repeatedly, so that a moment may fall into any
# phase.
. "$(dirname "$0")/lib.sh"
setup
moments=$1
start_daemon
two_vdevices direct
netns_add c
for i in 0 1 2 3 4 5 6 7; do loose_commands "eth$i"; done | ip_in c -batch -

# ---- creates, deletes, and records what was acknowledged ----------------------------------------
# $T/acknowledged/xN: "there", "gone" or "asked" (then either is right), and its sequence number.
mkdir "$T/acknowledged"
creator() {
  local x n=0
  while [[ ! -e $T/over ]]; do
    x=$((RANDOM % 8)) n=$((n + 1))
    if [[ $(cat "$T/acknowledged/x$x" 2>/dev/null) == there* ]]; then
      echo "asked $n" >"$T/acknowledged/x$x"
      ctl vdev delete "x$x" >/dev/null 2>&1 && echo "gone $n" >"$T/acknowledged/x$x"
    else
      echo "asked $n" >"$T/acknowledged/x$x"
      vdev_create "x$x" c "eth$x" --tenant "t$x" --quota "qp=$((x + 1))" 2>"$T/creator.words" &&
        echo "there $n" >"$T/acknowledged/x$x"
    fi
    sleep 0.01
  done || true
}
states() { (cd "$T/acknowledged" && grep -s . x* || true); }  # xN:STATE
# The list must show what was acknowledged before it was requested and did not change until it
# arrived.
kept() {
  local list before
  before=$(states)
  list=$(ctl vdev list) || return 1
  while IFS=: read -r name state; do
    [[ -z $name || $(cat "$T/acknowledged/$name") == "$state" ]] || continue
    case $state in
      there*) [[ $list == *"$name "* ]] || { LOST="$name is lost"; return 1; } ;;
      gone*) [[ $list != *"$name "* ]] || { LOST="$name is there again"; return 1; } ;;
    esac
  done <<<"$before"
}

# ---- the programs -------------------------------------------------------------------------------
pair_up() {
  local name
  for name in server client; do
    [[ -z ${PID[$name]:-} ]] || ended "${PID[$name]}" || return 0
  done
  for name in server client; do [[ -z ${PID[$name]:-} ]] || reap $name 1; done
  spawn server a nobody rping -s -a 10.0.0.1 -C 1000000 -S 2000 -V
  spawn client b nobody rping -c -a 10.0.0.1 -C 1000000 -S 2000 -V
}
gone_too() { ended "${PID[$1]}"; }
# A server without a client keeps listening, or has yet to start.
told_or_alone() { gone_too server || [[ $(ctl conn list va) != *ESTABLISHED* ]]; }
work_of() { awk '/ctxt_switches/ {n += $2} END {print n + 0}' "/proc/$1/status" 2>/dev/null; }
alive_or_gone() { # the pair goes on, or has ended
  local before
  before=$(work_of "${PID[client]}")
  wait_until 10 moved "$before"
}
moved() { ended "${PID[client]}" || [[ $(work_of "${PID[client]}") -gt $1 ]]; }

ctl vdev list >/dev/null
before=$(holdings)
creator &
PID[creator]=$!
declare -A times=([daemon]=0 [server]=0 [client]=0)
for ((moment = 0; moment < moments; ++moment)); do
  pair_up
  sleep "0.$(printf %03d $((RANDOM % 150)))"
  case $((RANDOM % 3)) in
    0)
      kill_daemon
      times[daemon]=$((times[daemon] + 1))
      start_daemon
      kept || fail "after kill -9 of vrdmad, moment $moment: ${LOST:-vdev list fails}: $(ctl vdev list)"
      alive_or_gone || fail "after kill -9 of vrdmad, moment $moment: the programs neither go on nor end"
      ;;
    1) kill -9 "${PID[server]}" 2>/dev/null && times[server]=$((times[server] + 1))
       wait_until 10 gone_too client || fail "moment $moment: the client is not told that its server died" ;;
    2) kill -9 "${PID[client]}" 2>/dev/null && times[client]=$((times[client] + 1))
       wait_until 10 told_or_alone || fail "moment $moment: the server is not told that its client died"
       kill -9 "${PID[server]}" 2>/dev/null || true ;;
  esac
done
touch "$T/over"
wait_until 30 ended "${PID[creator]}" || fail "the creator stands still"
kept || fail "in the end: ${LOST:-vdev list fails}"
for name in server client; do kill -9 "${PID[$name]}" 2>/dev/null || true; done
for x in 0 1 2 3 4 5 6 7; do ctl vdev delete "x$x" >/dev/null 2>&1 || true; done
wait_until 30 holds_only "$before" || {
  echo "before: $before"
  echo "after: $(holdings)"
  fail "vrdmad holds more than before"
}
say "kill -9 of vrdmad ${times[daemon]}, of the server ${times[server]}, of the client ${times[client]} times"
