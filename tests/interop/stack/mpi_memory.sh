#!/bin/bash
# mpi_memory.sh direct|mediated: memory.c by two ranks of MPI, over each registration cache that MPI comes with: UCX's, under
# Open MPI and MPICH, and libfabric's, which learns of freed memory by hooks, by userfaultfd(2), or keeps nothing.
#
#     netns a                         netns b
#   +------------------+            +------------------+
#   | rank 0           |    veth    |           rank 1 |   a launcher starts both on this host, by `vrdmactl exec`
#   |   va ------ eth0 |============| eth0 ------ vb   |
#   | 10.0.0.1         |            |         10.0.0.2 |
#   +------------------+            +------------------+
. "$(dirname "$0")/lib.sh"
mode=$1
setup
{ command -v mpirun.openmpi && command -v mpicc.openmpi; } >/dev/null || skip "openmpi-bin or libopenmpi-dev is not installed"
start_daemon
two_vdevices "$mode"
make_agent
here=$(dirname "$0") root=$(dirname "$0")/../../.. seconds=$((${VRDMA_RACE_SECONDS:-20} / 5)) seed=${VRDMA_SEED:-$RANDOM$RANDOM}
say "VRDMA_SEED=$seed"
LIMIT=$((seconds + 60))
OVER_UCX=(UCX_TLS=rc_verbs,ud_verbs,self UCX_LOG_LEVEL=error)

# has_passed WHAT STATUS: a run that wrote $T/run.log; its ranks sent to each other by the vdevices.
SENT=0
has_passed() {
  local sent
  [[ $2 -eq 0 && $(<"$T/run.log") == *[1-9]*" steps" ]] || fail "$1: $(tail -5 "$T/run.log")"
  sent=$(stat_of va work_requests_direct work_requests_connected)
  [[ $sent -gt $SENT ]] || fail "$1 sent nothing by va"
  SENT=$sent
  say "$1: $(tail -1 "$T/run.log")"
}

mpicc.openmpi -O2 -Wall -Werror -I "$root" -o "$T/memory" "$here/memory.c" "$here/memory_mpi.c"
run=0
openmpi_run "${OVER_UCX[@]}" -- --mca pml ucx "$T/memory" "$seed" "$seconds" >"$T/run.log" 2>&1 || run=$?
has_passed "Open MPI, UCX" $run

# FI_UNIVERSE_SIZE: see libfabric.sh.
for monitor in memhooks userfaultfd disabled; do
  run=0
  openmpi_run FI_PROVIDER="verbs;ofi_rxm" FI_UNIVERSE_SIZE=16 FI_VERBS_MR_CACHE_ENABLE=1 FI_MR_CACHE_MONITOR=$monitor -- \
    --mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include "verbs;ofi_rxm" "$T/memory" "$seed" "$seconds" \
    >"$T/run.log" 2>&1 || run=$?
  has_passed "Open MPI, libfabric, monitor $monitor" $run
done

if command -v mpirun.mpich >/dev/null && command -v mpicc.mpich >/dev/null; then
  mpicc.mpich -O2 -Wall -Werror -I "$root" -o "$T/mpich_memory" "$here/memory.c" "$here/memory_mpi.c"
  # Its launcher gives each rank a socket, and here a vdevice.
  # shellcheck disable=SC2016  # the ranks expand it
  ranks='devices=(va vb); exec "$0" exec "${devices[PMI_RANK]}" -- "$@"'
  run=0
  env -i PATH=/usr/bin:/bin HOME="$T" VRDMA_RUN_DIR="$R" MPIR_CVAR_NOLOCAL=1 "${OVER_UCX[@]}" timeout -k 5 "$LIMIT" \
    mpirun.mpich -launcher fork -np 2 bash -c "$ranks" "$BUILD/bin/vrdmactl" "$T/mpich_memory" "$seed" "$seconds" \
    >"$T/run.log" 2>&1 || run=$?
  has_passed "MPICH, UCX" $run
else
  say "MPICH is not installed"
fi
