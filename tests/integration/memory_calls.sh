#!/bin/bash
# memory_calls.sh PROGRAM MODE: random sequences of the calls that a program may make on private memory,
# on memory that is, was or becomes registered, against plain memory (memory_calls.cc). MODE: direct,
# mediated, guarded (by userfaultfd(2), where other modes have the threads held), or reached
# (VRDMA_MEMORY=reached). One thread, and four.
. "$(dirname "$0")/lib.sh"
setup
program=$1 mode=$2
seconds=${VRDMA_RACE_SECONDS:-5}
start_daemon
# The program is its own peer, which mediation by two tenants would not change.
case $mode in
  mediated) permissions=(--no-direct) ;;
  guarded) permissions=(--allow userfaultfd) ;;
  *) permissions=() ;;
esac
two_vdevices direct "${permissions[@]}"
cp "$program" "$T/memory_calls"  # a build directory may be closed to other users
reached() { ctl stats va | awk '$(NF - 1) ~ /^mr_reached_/ && $NF > 0 { printf "%s %s, ", $(NF - 1), $NF }'; }

environment=()
[[ $mode != reached ]] || environment=(env VRDMA_MEMORY=reached)
seed=${VRDMA_SEED:-$RANDOM$RANDOM}
for threads in 1 4; do
  say "$threads threads, $seconds s, VRDMA_SEED=$seed"
  LIMIT=$((seconds + 60)) on a nobody "${environment[@]}" "$T/memory_calls" va "$INDEX_A" \
    "$seed" "$seconds" "$threads" >"$T/table" 2>"$T/errors" || fail "$(<"$T/errors")"$'\n'"$(<"$T/table")"
  cat "$T/table"
  say "reached: $(reached)"
done
[[ $mode != reached || $(stat_of va mr_reached_asked) -gt 0 ]] || fail "VRDMA_MEMORY=reached is not respected"
