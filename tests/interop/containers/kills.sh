#!/bin/bash
# kills.sh MOMENTS [SEED]: kills a process at a moment in the life of a container of podman: the runtime (runc), the
# monitor (conmon), the hook or the daemon. Nothing may be left, and another container keeps its device.
#
#     container bystander     podman's bridge     container victim
#   +---------------------+                     +------------------+
#   | vrdma0 ---- eth0 ===|=====================|== eth0           |   one after the other
#   | ib_write_lat        |                     | vrdma0, perhaps  |
#   +---------------------+                     +------------------+
#
# The moments are all pairs of a process and a moment, shuffled, as often as MOMENTS wants; those within the hook's run
# are after a random delay. Prints what was killed, at which step, and what came of it. A SEED gives the same choices.
here=$(realpath "$(dirname "$0")")
. "$here/lib.sh"
for program in podman runc conmon; do need $program; done
[[ -x /usr/lib/podman/netavark ]] || skip "netavark is not installed"
apart "$@"
setup
[[ -x $BUILD/lib/vrdma/vrdma-oci-hook ]] || skip "the hook is not built with a sanitizer"
WORKERS_END=1  # with their broker, and later with vrdmad
trap 'status=$? command=$BASH_COMMAND; set +e; podman_stop; remove_groups; finish "$status" "$command"' EXIT
moments=$1
seed=${2:-$SRANDOM}
RANDOM=$seed
GROUP=/vr$$
mount -t tmpfs tmpfs /run/netns  # podman's namespaces are the test's
own_etc
podman_start
# Like /run.
mkdir "$R" "$T/strike"
mount -t tmpfs -o mode=755 tmpfs "$R"
daemon_options=(--cgroup "$GROUP-workers")
start_hooks_daemon "${daemon_options[@]}"
echo "$DAEMON" >"$T/strike/daemon"
hook=$BUILD/lib/vrdma/vrdma-oci-hook
ctl cdi generate
python3 - "$hook" "$here/strike.py" "$T/strike" <<'PYTHON'
import json, sys
hook, strike, directory = sys.argv[1:]
with open("/etc/cdi/vrdma.json") as file:
    specification = json.load(file)
for device in specification["devices"]:
    for call in device["containerEdits"]["hooks"]:
        assert call["path"] == hook
        call["path"], call["args"] = strike, [strike, directory, hook, *call["args"][1:]]
with open("/etc/cdi/vrdma.json", "w") as file:
    json.dump(specification, file)
PYTHON
make_image plain bookworm 'ldconfig -r .'
podman network create --disable-dns lab >"$T/network.log" 2>&1 || skip "podman cannot make a network here: $(tail -1 "$T/network.log")"
container() { # NAME COMMAND...
  podman run -d --name "$1" --cgroup-parent "$GROUP" --network lab --device vrdma.io/device=default localhost/plain "${@:2}"
}
init_of() { podman inspect -f '{{.State.Pid}}' "$1" 2>/dev/null || true; }
vdevices() { ctl vdev list 2>/dev/null | tail -n +2 | wc -l; }

# ---- the bystander ------------------------------------------------------------------------------

start_bystander() {
  container bystander ib_write_lat -F -x 1 >"$T/bystander.log" 2>&1 || fail "the bystander does not start: $(<"$T/bystander.log")"
  BYSTANDER=$(init_of bystander)
  BYSTANDER_ID=$(podman inspect -f '{{.Id}}' bystander)
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
# podman may call poststop after it has returned, so a kill may be late.
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
  if [[ $1 == monitor ]]; then victim=$(podman inspect -f '{{.State.ConmonPid}}' victim); fi
  echo "$1|$(<"/proc/$victim/comm")|the container runs" >"$T/strike/struck"
  kill -9 "$victim"
  wait_until 5 ended "$victim" || fail "$AT: $1 does not end"
  restart_if_killed
}
outcome() { # after its start, in a sentence
  local init=$VICTIM
  if ended "$init"; then
    [[ $STATUS -ne 0 ]] || fail "$AT: podman says that the container runs, and it does not"
    ! grep -E 'vrdma: .*(Interrupted system call|Broken pipe)' "$T/engine.log" || fail "$AT: the hook's sentence explains nothing"
    # The sentence of the hook, or else the runtime's or podman's own.
    echo "the container does not start$(grep -o 'vrdma: [^\\]*' "$T/engine.log" | sed -E '1!d; s/^vrdma: /: /; s/[0-9]+/N/g')"
  else
    wait_until 5 has_device "$init" || fail "$AT: a container runs without its device: $(<"$T/devinfo.log")"
    if [[ $STATUS -eq 0 ]]; then echo "the container runs and has its device"; else echo "podman fails; the container is there, with its device, until it is removed"; fi
  fi
}
# What podman itself leaves of a container whose runtime or monitor was killed: an empty control group, or processes.
sweep() {
  local groups pids
  groups=$(find /sys/fs/cgroup -depth -type d -path "*$GROUP/libpod-*" ! -path "*$BYSTANDER_ID*" 2>/dev/null)
  [[ -n $groups ]] || return 0
  pids=$(find $groups -name cgroup.procs -exec cat {} + | sort -u)
  if [[ -n $pids ]]; then
    said+="; podman forgets its processes"
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
  if [[ $when == running ]]; then strike_running "$who"; fi
  VICTIM=$(init_of victim)
  if [[ -z $VICTIM || $VICTIM -eq 0 ]]; then VICTIM=none; fi
  wait_until 20 daemon_is_up || fail "$AT: vrdmad does not answer on its admin socket"
  said=$(outcome) || exit 1
  run_to_end podman rm -f -t 0 victim
  if podman container exists victim; then podman rm -f -t 0 victim >"$T/engine.log" 2>&1 || fail "$AT: podman rm: $(<"$T/engine.log")"; fi
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

PAIRS=(runtime/before runtime/inside runtime/inside runtime/after runtime/poststop
  monitor/before monitor/inside monitor/after monitor/running
  hook/before hook/inside hook/inside hook/inside hook/poststop
  daemon/before daemon/inside daemon/inside daemon/inside daemon/after daemon/running daemon/poststop)
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

say "$(podman --version), $(runc --version | head -1), $(conmon --version | head -1); $moments moments, seed $seed"
start_bystander
# What the daemon has after a restart and a container.
kill -9 "$DAEMON"
wait_until 5 ended "$DAEMON" || fail "vrdmad does not end"
restart_if_killed
wait_until 20 daemon_answers || fail "vrdmad does not answer on its admin socket"
container victim true >"$T/engine.log" 2>&1 || fail "no container starts: $(<"$T/engine.log")"
podman rm -f -t 0 victim >"$T/engine.log" 2>&1 || fail "podman rm: $(<"$T/engine.log")"
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
podman rm -f -t 0 bystander >/dev/null 2>&1
