#!/bin/bash
# exported.sh: what an operator sees of a vdevice that a virtual machine has, beside what a client that plays VMM and
# guest (exported_vmm.py) did, while each process on the way is killed.
. "$(dirname "$0")/lib.sh"
WORKERS_END=1
setup
start_daemon
netns_add a
join a eth0 10.0.0.1/24 a eth1 10.0.0.2/24
vdev_create va a eth0
vdev_create vb a eth1

# begin COMMAND...: it exports a vdevice, as ${PID[device]}.
begin() {
  "$@" >"$T/device.log" 2>&1 </dev/null &
  PID[device]=$!
  wait_until 10 grep -q '^ready' "$T/device.log" || fail "vrdma-pvrdma does not become ready: $(<"$T/device.log")"
}
# tell WORDS...: the client does it, and $DONE is what it has done so far.
tell() {
  echo "$*" >&"${VMM[1]}"
  read -r -t 20 DONE <&"${VMM[0]}" || fail "the VMM does not answer: $(<"$T/vmm.log"); $(<"$T/device.log")"
}
# shows WORDS...: the only export has these values, NAME=JSON each, and $DONE, and no count of anything else.
shows() {
  ctl vdev show va -j | python3 -c '
import json, sys
shown, = json.load(sys.stdin)
one, = shown["exports"]
wanted = dict.fromkeys(("attaches_refused", "requests_refused", "events_lost", "replaced"), 0)
wanted.update(json.loads(sys.argv[1]), pid=int(sys.argv[2]), doorbell_mode="trap", socket=sys.argv[3])
wanted.update((name, json.loads(value)) for name, value in (word.split("=") for word in sys.argv[4:]))
if one != wanted: sys.exit(f"{one}\n  instead of\n{wanted}")' "$DONE" "$(process)" "$T/va.sock" "$@" >"$T/shown" 2>&1
}
process() { pgrep -P "${PID[device]}" || echo 0; }
must_show() { wait_until 10 shows "$@" || fail "vdev show: $(<"$T/shown")"; }
shows_nothing() {
  [[ $(ctl vdev show "$1" -j) == *'"exports": []'* && $(ctl vdev show "$1") != *'exported  '* ]]
}

shows_nothing va || fail "a vdevice is exported: $(ctl vdev show va)"
begin "$BUILD/bin/vrdmactl" --run-dir "$R" vdev export va --socket "$T/va.sock"
DONE='{"doorbells":0,"registers":0,"commands":0,"interrupts":0,"commands_refused":0,"doorbells_refused":0}'
must_show vmm_connected=false driver_version=null
shows_nothing vb || fail "a vdevice beside it is exported: $(ctl vdev show vb)"

say "a machine comes"
coproc VMM { exec python3 "$(dirname "$0")/exported_vmm.py" "$T/va.sock" 2>"$T/vmm.log"; }
PID[vmm]=$VMM_PID
tell connect
must_show vmm_connected=true driver_version=null
for _ in 1 2; do tell attach 22 0x7ffff000; done
must_show vmm_connected=true driver_version=null
tell doorbell 1
tell attach 23
must_show vmm_connected=true driver_version=23
for _ in 1 2 3; do tell command 0; done
for _ in 1 2; do tell command 99; done
for _ in 1 2 3 4 5; do tell doorbell 0x40000007; done
must_show vmm_connected=true driver_version=23
[[ $(python3 -c 'import json, sys; print(*json.loads(sys.argv[1]).values())' "$DONE") == "5 23 5 3 2 2 5" ]] ||
  fail "the client did $DONE"
ctl vdev show va | grep -A 7 '^ *exported '

say "the worker is killed, and vrdmad"
workers | xargs kill -9
tell command 0
must_show vmm_connected=true driver_version=23
kill_daemon
start_daemon
tell command 0
must_show vmm_connected=true driver_version=23

say "the process that serves the machine is killed"
old=$(process)
kill -9 "$old"
goes_on() { grep -q "the guest's driver has its device again" "$T/device.log"; }
wait_until 10 goes_on || fail "no process goes on: $(<"$T/device.log")"
tell command 0
tell doorbell 0x40000007
must_show vmm_connected=true driver_version=23 replaced=1

say "the machine goes, and the export ends"
exec {VMM[1]}>&-
must_show vmm_connected=false driver_version=null replaced=1
kill "${PID[device]}"
wait "${PID[device]}" || fail "vrdma-pvrdma ends with status $?"
wait_until 10 shows_nothing va || fail "it is exported still: $(ctl vdev show va)"

say "a tenant's program says something strange"
# shellcheck disable=SC2046
begin $(enter a) env VRDMA_RUN_DIR="$R" "$BUILD/lib/vrdma/vrdma-pvrdma" --device va --socket "$T/$(printf 'a \e[31m"\xff\\')"
shown() { ctl vdev show va | sed -n 's/^      socket  *//p'; }
[[ $(shown) == "$T/a \\x1b[31m\"\\xff\\" ]] || fail "it is shown as $(shown | od -c)"
json() { ctl vdev show va -j | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["exports"][0]["socket"])'; }
[[ $(json) == "$(shown)" ]] || fail "the JSON has $(json | od -c)"
kill "${PID[device]}"
wait "${PID[device]}" || fail "vrdma-pvrdma ends with status $?"
no_sanitizer vrdma-pvrdma "$T/device.log"
