#!/bin/bash
# ends.sh PROGRAM MODE: memory that a program was given back stays as the program leaves it, in whatever way the
# transfer into it was ended (ends.cc). MODE: direct, mediated or network. Direct links once more with a peer that is
# stopped in the middle.
. "$(dirname "$0")/lib.sh"
setup
program=$1 mode=$2
start_daemon
two_ends "$mode"
cp "$program" "$T/ends"
seed=${VRDMA_SEED:-$RANDOM}
listens_at() { grep -qs listening "$T/server.log"; }

round() { # [stop]
  say "VRDMA_SEED=$seed $*"
  rm -f "$T/server.log"
  spawn server a nobody "$T/ends" va "$INDEX_A" 10.0.0.1 "$seed" "$@"
  wait_until 20 listens_at || fail "the owner does not listen"
  spawn client b nobody "$T/ends" vb "$INDEX_B" 10.0.0.2 "$seed" "$@" 10.0.0.1
  both_end_well ends "$@"
  cat "$T/server.log"
}
round
if [[ $mode == direct ]]; then
  round stop
  [[ $(stat_of va mr_reached_late) -gt 0 ]] || fail "no memory was taken back from the stopped peer"
fi
