#!/bin/bash
# openmpi.sh direct|mediated: Open MPI over UCX over verbs: ring, all-reduce, one-sided.
#
#     netns a, host "va"              netns b, host "vb"
#   +------------------+            +------------------+
#   | mpirun, rank 0   |    veth    |   orted,  rank 1 |   mpirun starts orted by an agent that is
#   |   va ------ eth0 |============| eth0 ------ vb   |   `vrdmactl exec` instead of ssh
#   | 10.0.0.1         |            |         10.0.0.2 |
#   +------------------+            +------------------+
. "$(dirname "$0")/lib.sh"
mode=$1
setup
programs=(ring allreduce onesided)
{ command -v mpirun && command -v mpicc; } >/dev/null ||
  tell_and_skip "Open MPI" "$mode" ${#programs[@]} "openmpi-bin or libopenmpi-dev is not installed"
start_daemon
two_vdevices "$mode"
mpicc -O1 -Wall -o "$T/mpi" "$(dirname "$0")/mpi.c"

make_agent

passed=0 failed=0
for program in "${programs[@]}"; do
  # Nothing but verbs between ranks: no shared memory, no TCP.
  if openmpi_run UCX_TLS=rc_verbs,ud_verbs,self -- --mca pml ucx --mca osc ucx "$T/mpi" "$program" \
    >"$T/mpirun.log" 2>&1; then
    passed=$((passed + 1))
  else
    echo "FAILED: $program"
    tail -n 20 "$T/mpirun.log"
    failed=$((failed + 1))
  fi
done
tell "Open MPI" "$mode" $passed $failed 0
[[ $failed -eq 0 ]] || fail "$failed of Open MPI's programs failed"
