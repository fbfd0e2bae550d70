#!/bin/bash
# numpy_memory.sh direct: arrays of numpy under regions of pyverbs, which stay when an array moves or goes: see
# numpy_memory.py; in place, and reached.
. "$(dirname "$0")/lib.sh"
mode=$1
setup
/usr/bin/python3 -c 'import numpy, pyverbs.device' 2>/dev/null || skip "python3-numpy or python3-pyverbs is not installed"
start_daemon
two_vdevices "$mode"
seconds=$((${VRDMA_RACE_SECONDS:-6} / 2)) seed=${VRDMA_SEED:-$RANDOM$RANDOM}
say "VRDMA_SEED=$seed"
for memory in "" VRDMA_MEMORY=reached; do
  exec_in va env $memory /usr/bin/python3 "$(dirname "$0")/numpy_memory.py" va "$INDEX_A" "$seed" "$seconds" >"$T/run.log" 2>&1 ||
    fail "${memory:-in place}: $(tail -5 "$T/run.log")"
  say "${memory:-in place}: $(<"$T/run.log")"
done
