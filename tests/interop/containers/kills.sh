#!/bin/bash
# kills.sh podman|containerd MOMENTS [SEED]: kills a process at a moment in the life of a container of that engine: with
# podman the runtime (runc), the monitor (conmon), the hook or the daemon; with containerd the monitor (the shim). Nothing
# may be left, and another container keeps its device.
#
#     container bystander     bridge, or veth     container victim
#   +---------------------+                     +------------------+
#   | vrdma0 ---- eth0 ===|=====================|== eth0           |   one after the other
#   | ib_write_lat        |                     | vrdma0, perhaps  |
#   +---------------------+                     +------------------+
#
# The moments are all pairs of a process and a moment, shuffled, as often as MOMENTS wants; those within the hook's run
# are after a random delay. Prints what was killed, at which step, and what came of it. A SEED gives the same choices.
here=$(realpath "$(dirname "$0")")
. "$here/lib.sh"
engine=$1
. "$here/kills_$engine.sh"
for program in podman runc "${NEEDS[@]}"; do need "$program"; done
apart "$@"
setup
[[ -x $BUILD/lib/vrdma/vrdma-oci-hook ]] || skip "the hook is not built with a sanitizer"
WORKERS_END=1  # with their broker, and later with vrdmad
trap 'status=$? command=$BASH_COMMAND; set +e; engine_stop; podman_stop; remove_groups; finish "$status" "$command"' EXIT
moments=$2
seed=${3:-$SRANDOM}
RANDOM=$seed
GROUP=/vr$$
mount -t tmpfs tmpfs /run/netns  # the engine's namespaces are the test's
own_etc
podman_start
# Like /run.
mkdir "$R" "$T/strike"
mount -t tmpfs -o mode=755 tmpfs "$R"
daemon_options=(--cgroup "$GROUP-workers")
start_hooks_daemon "${daemon_options[@]}"
echo "$DAEMON" >"$T/strike/daemon"
hook=$BUILD/lib/vrdma/vrdma-oci-hook
# strike_by FILE: the calls of the hook in it, a CDI specification or a config.json, are strike.py's.
strike_by() { python3 "$here/strike.py" --call "$1" "$T/strike" "$hook"; }
make_image plain bookworm 'ldconfig -r .'
engine_start
vdevices() { ctl vdev list 2>/dev/null | tail -n +2 | wc -l; }

# ---- the bystander ------------------------------------------------------------------------------

start_bystander() {
  container bystander ib_write_lat -F -x 1 >"$T/bystander.log" 2>&1 || fail "the bystander does not start: $(<"$T/bystander.log")"
  BYSTANDER=$(init_of bystander)
}
inside() { nsenter -t "$1" -m -n -- "${@:2}"; }  # INIT COMMAND...
has_device() { inside "$1" ibv_devinfo -d vrdma0 >"$T/devinfo.log" 2>&1; }
# The program in it is the same and has a session on its device.
bystander_is_well() {
  daemon_is_up && ! ended "$BYSTANDER" && has_device "$BYSTANDER" &&
    ctl vdev show "pid:$BYSTANDER/vrdma0" -o json 2>/dev/null | grep -q '"sessions": 1,'
}

# ---- a moment -----------------------------------------------------------------------------------

# The daemon is started again when it has ended, as a service manager does.
restart_if_killed() {
  ended "$DAEMON" || return 0
  wait "$DAEMON" 2>/dev/null || true
  launch_daemon "${daemon_options[@]}"
  echo "$DAEMON" >"$T/strike/daemon"
}
# An engine may call poststop after it has returned, so a kill may be late.
daemon_is_up() {
  restart_if_killed
  daemon_answers
}
# run_to_end COMMAND...: with restarts of the daemon meanwhile; $STATUS is its exit status.
run_to_end() {
  "$@" >"$T/engine.log" 2>&1 &
  PID[engine]=$!
  until ended "${PID[engine]}"; do
    restart_if_killed
    sleep 0.02
  done
  reap engine 1
  STATUS=$REAPED
  restart_if_killed
}
strike_running() { # WHO
  local victim=$DAEMON
  if [[ $1 == monitor ]]; then victim=$(monitor_of victim); fi
  echo "$1|$(<"/proc/$victim/comm")|the container runs" >"$T/strike/struck"
  kill -9 "$victim"
  wait_until 5 ended "$victim" || fail "$AT: $1 does not end"
  restart_if_killed
}
outcome() { # after its start, in a sentence
  local init=$VICTIM
  if [[ $when == running && $who == monitor && -n $ENDS_WITH_MONITOR ]]; then
    wait_until 10 ended "$init" || fail "$AT: the container outlives its monitor"
    echo "the container ends"
  elif ended "$init"; then
    [[ $STATUS -ne 0 ]] || fail "$AT: $engine says that the container runs, and it does not"
    ! grep -E 'vrdma: .*(Interrupted system call|Broken pipe)' "$T/engine.log" || fail "$AT: the hook's sentence explains nothing"
    # The sentence of the hook, or else the runtime's or the engine's own.
    echo "the container does not start$(grep -o 'vrdma: [^\\]*' "$T/engine.log" | sed -E '1!d; s/^vrdma: /: /; s/[0-9]+/N/g')"
  else
    wait_until 5 has_device "$init" || fail "$AT: a container runs without its device: $(<"$T/devinfo.log")"
    if [[ $STATUS -eq 0 ]]; then echo "the container runs and has its device"; else echo "$engine fails; the container is there, with its device, until it is removed"; fi
  fi
}
# What the engine itself leaves of a container whose runtime or monitor was killed: an empty control group, or processes.
sweep() {
  local groups pids
  groups=$(groups_of_victim)
  [[ -n $groups ]] || return 0
  pids=$({ find $groups -name cgroup.procs -exec cat {} + 2>/dev/null || true; } | sort -u)  # some end meanwhile
  if [[ -n $pids ]]; then
    said+="; $engine forgets its processes"
    xargs -r kill -9 <<<"$pids" 2>/dev/null || true
  fi
  wait_until 5 rmdirs "$groups" || fail "$AT: control groups of the container cannot be removed"
}
rmdirs() { xargs rmdir <<<"$1" 2>/dev/null || [[ -z $(xargs ls -d <<<"$1" 2>/dev/null) ]]; }
declare -A TABLE=()
# moment WHO MOMENT DELAY
moment() {
  local who=$1 when=$2 struck said
  AT="seed $seed, moment $number: $who, $when, delay $3"
  echo "$AT" >"$T/moment.log"
  rm -f "$T"/strike/{plan,struck}
  if [[ $when != running ]]; then echo "$who $when $3" >"$T/strike/plan"; fi
  run_to_end container victim sleep 1000
  if [[ $when == running || $when == poststop ]]; then
    [[ $STATUS -eq 0 ]] || fail "$AT: the container does not start: $(<"$T/engine.log")"
  fi
  VICTIM=$(init_of victim)
  if [[ -z $VICTIM || $VICTIM -eq 0 ]]; then VICTIM=none; fi
  if [[ $when == running ]]; then strike_running "$who"; fi
  wait_until 20 daemon_is_up || fail "$AT: vrdmad does not answer on its admin socket"
  said=$(outcome) || exit 1
  run_to_end remove victim
  if exists victim; then remove victim >"$T/engine.log" 2>&1 || fail "$AT: the container cannot be removed: $(<"$T/engine.log")"; fi
  if [[ $when == poststop ]]; then said="the container is removed"; fi
  sweep
  wait_until 5 test -s "$T/strike/struck" || fail "$AT: nothing was killed"
  struck=$(<"$T/strike/struck")
  wait_until 5 bystander_is_well || fail "$AT: the bystander has no device: $(ctl vdev list)"
  # Descriptors too: vrdmad gives a connection of a hook up to 30 s.
  wait_until 40 remains_as "$T/before" || fail "$AT ($struck): something is left: $(<"$T/remains-diff")"
  ! pgrep -f "$hook --run-dir $R" >/dev/null || fail "$AT: a hook is left"
  struck="${struck//|/ | } | $said"
  TABLE[$struck]=$((${TABLE[$struck]:-0} + 1))
}

choose() { # the next of a shuffled list of all pairs, in $CHOICE
  local i j swap
  if [[ ${#LEFT[@]} -eq 0 ]]; then
    LEFT=("${PAIRS[@]}")
    for ((i = ${#LEFT[@]} - 1; i > 0; --i)); do
      j=$((RANDOM % (i + 1))) swap=${LEFT[i]}
      LEFT[i]=${LEFT[j]}
      LEFT[j]=$swap
    done
  fi
  CHOICE=${LEFT[-1]}
  unset 'LEFT[-1]'
}
LEFT=()

say "$(engine_version), $(runc --version | head -1); $moments moments, seed $seed"
start_bystander
wait_until 20 bystander_is_well || fail "the bystander has no device: $(ctl vdev list)"
# What the daemon has after a restart and a container.
kill -9 "$DAEMON"
wait_until 5 ended "$DAEMON" || fail "vrdmad does not end"
restart_if_killed
wait_until 20 daemon_answers || fail "vrdmad does not answer on its admin socket"
container victim true >"$T/engine.log" 2>&1 || fail "no container starts: $(<"$T/engine.log")"
remove victim >"$T/engine.log" 2>&1 || fail "the container cannot be removed: $(<"$T/engine.log")"
wait_until 20 bystander_is_well || fail "the bystander has no device: $(ctl vdev list)"
remember "$T/before" 1
for ((number = 1; number <= moments; ++number)); do
  choose
  printf -v delay '0.%04d' $((RANDOM % 120))
  moment "${CHOICE%/*}" "${CHOICE#*/}" "$delay"
done

say "passed, seed $seed"
echo "| killed (-9) | process | step | outcome | times |"
echo "|---|---|---|---|---|"
for row in "${!TABLE[@]}"; do echo "| $row | ${TABLE[$row]} |"; done | sort
remove bystander >/dev/null 2>&1
