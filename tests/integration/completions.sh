#!/bin/bash
# completions.sh PROGRAM MODE [ROUNDS]: the order of completions, and their events (completions.cc). In the middle of the
# events the workers are killed. MODE: direct, mediated or network.
. "$(dirname "$0")/lib.sh"
setup
need_worker_processes
WORKERS_END=1
program=$1 mode=$2 rounds=${3:-1000}
start_daemon
two_ends "$mode"
cp "$program" "$T/completions"
LIMIT=600
says() { grep -qs "$2" "$T/$1.log" || ended "${PID[$1]}"; }
sleep_both() { says server sleeps && says client sleeps; }

spawn server a nobody "$T/completions" va "$INDEX_A" 10.0.0.1 "$rounds" "$T/go"
wait_until 20 says server listening || fail "it does not listen"
spawn client b nobody "$T/completions" vb "$INDEX_B" 10.0.0.2 "$rounds" "$T/go" 10.0.0.1
wait_until 300 sleep_both || fail "they do not come to the events"
ended "${PID[client]}" && both_end_well completions "$mode"
mapfile -t doomed < <(workers)
[[ ${#doomed[@]} -gt 0 ]] || fail "there is no worker: $(<"$T/client.log")"
kill -9 "${doomed[@]}"
wait_until 20 all_taken_over 2 || fail "the sessions were not taken over"
touch "$T/go"
both_end_well completions "$mode"
cat "$T/client.log"
