#!/bin/bash
# connects.sh PROGRAM: a process that connects, sends requests and dies as fast as it can gets what
# its vdevice's conns, conn_rate and req_rate allow, or waits; its neighbour is served meanwhile,
# and nothing is left.
#
#      netns a                   netns b
#   +-------------+           +-------------+
#   | PROGRAM     |   veth    | ibv_devinfo |     of one fabric, and so on one worker
#   | va --- eth0 |===========| eth0 --- vb |
#   +-------------+           +-------------+
. "$(dirname "$0")/../lib.sh"
setup
program=$1
readonly SECONDS_EACH=2 CONN_RATE=200 REQ_RATE=1000 CONNS=300
start_daemon
two_vdevices mediated
socket_a=$(socket_of va) socket_b=$(socket_of vb)
cp "$program" "$T/connects"
ctl quota set va "conns=$CONNS,conn_rate=$CONN_RATE,req_rate=$REQ_RATE"
sleep 1.2  # what it had saved up under the limits before

refused() { stat_of "$1" "quota_refused_$2"; }
longest_pass() { stat_of daemon worker_longest_pass_0; }

# flood MODE SOCKET [SECONDS]: runs the attacker, and meanwhile the neighbour, which opens its
# vdevice and calls rdma_cm repeatedly. The attacker's count is in $DONE, the time in $TOOK
# (seconds).
flood() {
  local served=0 began=${EPOCHREALTIME/./}
  spawn attacker a nobody "$T/connects" "$1" "$2" "${3:-$SECONDS_EACH}"
  begun() { grep -q '^begun$' "$T/attacker.log"; }
  wait_until 20 begun || fail "$1: the attacker does not begin"
  until ended "${PID[attacker]}"; do
    LIMIT=20 on b root ibv_devinfo -d vb >"$T/neighbour.log" 2>&1 || fail "$1: the neighbour is not served"
    served=$((served + 1))
    ctl vdev list >/dev/null || fail "$1: an operator is not answered"
  done
  TOOK=$(((${EPOCHREALTIME/./} - began) / 1000000 + 1))
  reap attacker 5
  [[ $REAPED -eq 0 ]] || fail "$1: the attacker ends with status $REAPED"
  DONE=$(sed -nE 's/^([0-9]+) done$/\1/p' "$T/attacker.log")
  say "$1: $DONE; the neighbour was served $served times"
  [[ $served -gt 0 ]] || fail "$1: the neighbour was never served"
}
# at_most LIMIT WHAT: checks the attacker's count. Connections in the listen queue count as
# connected.
at_most() { [[ $DONE -le $1 ]] || fail "$2: $DONE in $TOOK s; at most $1"; }
counted() { [[ $(refused va "$1") -gt 0 ]] || fail "nothing counts what $1 kept back"; }

before=$(holdings)
flood connect "$socket_a"
at_most $((CONN_RATE * (TOOK + 1) + 200)) "connections"
counted conn_rate
flood die "$socket_a"
on a root ibv_devinfo -d va >/dev/null || fail "the attacker's own vdevice cannot be opened any more"

# Longer: connections that the listener has not accepted yet still count as held.
flood hold "$socket_a" 5
at_most "$CONNS" "connections at once"
counted conns

flood ask "$socket_a"
at_most $((REQ_RATE * (TOOK + 1) + 200)) "requests"
[[ $DONE -gt $REQ_RATE ]] || fail "requests that came too fast are not answered later: $DONE"
counted req_rate

flood cm-connect "$socket_a"
at_most $((4 * CONN_RATE * (TOOK + 1) + 800)) "connections to the rdma_cm socket"
[[ $(stat_of daemon cm_namespaces_crowded) -gt 0 ]] || fail "nothing counts rdma_cm's connections"
flood cm-ask "$socket_a"
at_most $((REQ_RATE * (TOOK + 1) + 200)) "requests at rdma_cm"
[[ $DONE -gt $REQ_RATE ]] || fail "requests at rdma_cm that came too fast are not answered: $DONE"
[[ $(stat_of daemon cm_sessions_delayed) -gt 0 ]] || fail "nothing counts rdma_cm's requests"

# At the neighbour's own socket, which does not pay for it.
flood connect "$socket_b"
[[ $(stat_of vb connections_foreign) -gt 0 ]] || fail "nobody counts connections of another namespace"
flood cm-connect "$socket_b"
for kind in conns conn_rate req_rate; do
  [[ $(refused vb "$kind") -eq 0 ]] || fail "the neighbour was charged: $kind"
done
say "the longest pass of the worker: $(longest_pass) us"
wait_until 30 holds_only "$before" || fail "vrdmad holds more than before: $(holdings); before: $before"
