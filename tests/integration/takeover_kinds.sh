#!/bin/bash
# takeover_kinds.sh MODE PROGRAM: objects of each kind outlive the daemon that created them.
#
#     netns a                 netns b
#   +-----------+           +-----------+
#   | programs  |   veth    |   answers |     MODE direct; mediated: without direct links
#   | va -- eth0|===========|eth0 -- vb |
#   +-----------+           +-----------+
. "$(dirname "$0")/lib.sh"
mode=$1
setup
cp "$2" "$T/lib/kinds"
start_daemon
options=(--allow raw-packet,qp1)
[[ $mode == direct ]] || options+=(--no-direct)
two_vdevices direct "${options[@]}"

ready() { grep -qs ready "$T/$1.log"; }
# outlives NAME...: kills the daemon four times while the programs run; each daemon takes them over.
# The programs end one after the other, the last one first.
outlives() {
  local before name names=("$@")
  for name in "$@"; do wait_until 20 ready "$name" || fail "$name is not ready: $(<"$T/$name.log")"; done
  for round in 1 2 3 4; do
    sleep "0.$((RANDOM % 300 + 200))"
    before=$(took_over)
    kill_daemon
    start_daemon
    wait_until 10 all_taken_over $((before + $#)) ||
      fail "not all sessions are taken over: $(grep 'cannot be taken over' "$T/vrdmad.log")"
    [[ $round -ne 2 ]] || for name in "$@"; do kill -USR1 "${PID[$name]}"; done
  done
  sleep 0.3
  for ((i = $# - 1; i >= 0; i--)); do
    name=${names[i]}
    kill -TERM "${PID[$name]}" 2>/dev/null || true  # it may have failed
    reap "$name" 30
    no_sanitizer "$name" "$T/$name.log"
    [[ $REAPED -eq 0 ]] || fail "$name ends with status $REAPED: $(tail -n 3 "$T/$name.log")"
    say "$name: $(tail -n 1 "$T/$name.log")"
  done
  wait_until 5 no_session_files || fail "files of sessions are left"
}

for kind in window xrc imported; do
  say "$kind"
  spawn "$kind" a nobody "$T/lib/kinds" "$kind" va "$INDEX_A"
  outlives "$kind"
done

say "raw packet queue pairs, and flows"
mac=$(on b root cat /sys/class/net/eth0/address)
spawn frames-answer b root "$T/lib/kinds" frames vb "$INDEX_B" answer
wait_until 20 ready frames-answer || fail "no raw packets: $(<"$T/frames-answer.log")"
spawn frames a root "$T/lib/kinds" frames va "$INDEX_A" "$mac"
outlives frames-answer frames

say "queue pair 1"
spawn mads-answer b nobody "$T/lib/kinds" mads vb "$INDEX_B" answer
wait_until 20 ready mads-answer || fail "no queue pair 1: $(<"$T/mads-answer.log")"
spawn mads a nobody "$T/lib/kinds" mads va "$INDEX_A" ::ffff:10.0.0.2
outlives mads-answer mads
