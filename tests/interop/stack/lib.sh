# shellcheck shell=bash
# What the tests of other people's programs are made of, beside integration/lib.sh.
#
# A test ends with tell, which leaves one line in $BUILD/stack for the program and its mode;
# `report` beside this file prints all of them.
. "$(dirname "$0")/../../integration/lib.sh"

# exec_in VDEVICE COMMAND...: as root, as `vrdmactl exec` gives it to anybody, in a clean environment.
exec_in() {
  local vdevice=$1
  shift
  env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME="$T" VRDMA_RUN_DIR="$R" timeout -k 5 "${LIMIT:-60}" \
    "$BUILD/bin/vrdmactl" exec "$vdevice" -- "$@"
}

# exec_behind NAME VDEVICE COMMAND...: the same in the background, see spawn.
exec_behind() {
  local name=$1 vdevice=$2
  shift 2
  (
    cd "$T"
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME="$T" VRDMA_RUN_DIR="$R" \
      "$BUILD/bin/vrdmactl" exec "$vdevice" -- "$@"
  ) >"$T/$name.log" 2>&1 </dev/null &
  PID[$name]=$!
}

# meet WHAT PROGRAM ARGUMENTS...: server in va, client in vb, which is told 10.0.0.1 as well; counts
# in $PASSED and $FAILED. The server listens on $PORT.
PASSED=0 FAILED_RUNS=0
meet() {
  local what=$1
  shift
  exec_behind server va "${SETTINGS[@]}" "$@"
  wait_until 20 listens server || fail "$what: the server does not listen"
  exec_behind client vb "${SETTINGS[@]}" "$@" 10.0.0.1
  both_end "$what"
}
# meet_cm WHAT SERVER... -- CLIENT...: as meet(), of programs that meet by rdma_cm.
meet_cm() {
  local what=$1 server=() before
  shift
  while [[ $1 != -- ]]; do server+=("$1"); shift; done
  shift
  before=$(cm_listeners)
  exec_behind server va "${SETTINGS[@]}" "${server[@]}"
  wait_until 20 cm_listens_since "$before" || fail "$what: the server does not listen"
  exec_behind client vb "${SETTINGS[@]}" "$@"
  both_end "$what"
}
both_end() {
  if wait_until 30 ended "${PID[client]}" && reap client 1 && [[ $REAPED -eq 0 ]] &&
    reap server 10 && [[ $REAPED -eq 0 ]]; then
    PASSED=$((PASSED + 1))
    return
  fi
  echo "FAILED: $1"
  tail -n 5 "$T/client.log" "$T/server.log"
  FAILED_RUNS=$((FAILED_RUNS + 1))
  kill -9 "${PID[@]}" 2>/dev/null || true
  [[ ${#PID[@]} -eq 0 ]] || wait "${PID[@]}" 2>/dev/null || true  # without words it waits for the daemon
  unset "PID[client]" "PID[server]"
}
SETTINGS=(env)  # what to put in front of a program

# make_agent: writes `$T/agent HOST COMMAND...` for openmpi_run. A host is a vdevice here. Its name is that of a host of its
# own, or ranks would take each other for neighbours on one.
make_agent() {
  cat >"$T/agent" <<AGENT
#!/bin/bash
host=\$1
shift
exec env VRDMA_RUN_DIR='$R' '$BUILD/bin/vrdmactl' exec "\$host" -- \
  unshare --uts sh -c "hostname \$host; \$*"
AGENT
  chmod +x "$T/agent"
}
# openmpi_run VARIABLE=VALUE... -- WORDS...: Open MPI's mpirun of WORDS, one rank on va and one on vb.
openmpi_run() {
  local variables=()
  while [[ $1 != -- ]]; do variables+=("$1"); shift; done
  shift
  exec_in va unshare --uts sh -c 'hostname va; exec "$@"' - env "${variables[@]}" mpirun.openmpi --allow-run-as-root \
    --mca plm_rsh_agent "$T/agent" --mca btl self --mca coll ^hcoll --mca mpi_yield_when_idle 1 --bind-to none \
    --host va:1,vb:1 -np 2 "$@"
}

# tell PROGRAM MODE PASSED FAILED SKIPPED [WHY]
tell() {
  mkdir -p "$BUILD/stack"
  printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" "$5" "${6:-}" >"$BUILD/stack/$NAME.$2"
  say "$1 ($2): $3 passed, $4 failed, $5 skipped ${6:+($6)}"
}

# tell_and_skip PROGRAM MODE TESTS WHY
tell_and_skip() {
  tell "$1" "$2" 0 0 "$3" "$4"
  skip "$4"
}
