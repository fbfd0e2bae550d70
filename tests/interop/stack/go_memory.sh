#!/bin/bash
# go_memory.sh direct: slices of Go's heap under regions, which stay when Go gives the memory back to the kernel by system
# calls of its own: see go_memory.go; in place, and reached.
. "$(dirname "$0")/lib.sh"
mode=$1
setup
command -v go >/dev/null || skip "golang-go is not installed"
start_daemon
two_vdevices "$mode"
seconds=$((${VRDMA_RACE_SECONDS:-6} / 2)) seed=${VRDMA_SEED:-$RANDOM$RANDOM}
say "VRDMA_SEED=$seed"
GOCACHE=$T/go GOFLAGS=-mod=mod go build -o "$T/go_memory" "$(dirname "$0")/go_memory.go" || fail "it does not compile"
for memory in "" VRDMA_MEMORY=reached; do
  exec_in va env $memory "$T/go_memory" va "$INDEX_A" "$seed" "$seconds" >"$T/run.log" 2>&1 ||
    fail "${memory:-in place}: $(tail -5 "$T/run.log")"
  say "${memory:-in place}: $(<"$T/run.log")"
done
