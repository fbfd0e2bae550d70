#!/bin/bash
# no_worker.sh: no worker can be started for a while. Programs that come are told so, those that are there go on.
#
#     netns a           netns b           netns c
#   +------------+   +------------+   +------------+
#   | va -- eth0 |   | vb -- eth0 |   | vc -- eth0 |   vb, vc: without a worker, when none can be started
#   +------------+   +------------+   +------------+
. "$(dirname "$0")/lib.sh"
setup
need_worker_processes
WORKERS_END=1
cp -r "$(dirname "$VRDMAD")" "$T/sbin"
VRDMAD=$T/sbin/vrdmad
start_daemon
netns_add a b c
for space in a b c; do
  loose $space eth0
  vdev_create "v$space" $space eth0 --tenant "t$space"
done
spawn watcher a nobody ibv_asyncwatch -d va
is_watched() { [[ $(ctl vdev show va) =~ sessions\ +1 ]]; }
wait_until 10 is_watched || fail "va is not open"
worker=$(workers)
[[ $worker == +([0-9]) ]] || fail "there are the workers '$worker'"
declined() { # NETNS VDEVICE: an attempt to open it
  local status=0
  LIMIT=30 on "$1" nobody ibv_devinfo -d "$2" >"$T/open.log" 2>&1 || status=$?
  [[ $status -ne 0 && $status -ne 124 ]] || { cat "$T/open.log"; fail "the attempt to open $2 ends with $status"; }
  grep -qxF "vrdma: a vdevice cannot be used: vrdmad cannot start the worker that would serve this program; its log and 'vrdmactl doctor' say why" \
    "$T/open.log" || { cat "$T/open.log"; fail "the library does not say why"; }
}
shows() { ctl vdev show "$1" | grep -qE "no worker +start a worker: .*it could not execute its program: Permission denied"; }

say "a program that opens a vdevice is told that there is no worker, and so is the next"
chmod a-x "$T/sbin/vrdmad-worker"
declined b vb
declined b vb
shows vb || fail "vdev show: $(ctl vdev show vb)"
shows va && fail "va, which has a worker, shows the lack of another"
ctl vdev show vb -o json | grep -q '"unserved": "start a worker: ' || fail "the JSON"
if ctl doctor --netns "$(ns b)" >"$T/doctor.log" 2>&1; then fail "doctor finds nothing: $(<"$T/doctor.log")"; fi
grep -qE "^problem +worker +vrdmad cannot serve programs of vb: start a worker: .*Permission denied; give vrdmad what it lacks there" "$T/doctor.log" ||
  fail "doctor: $(<"$T/doctor.log")"
grep -qE "^ok +session" "$T/doctor.log" && fail "doctor: $(<"$T/doctor.log")"

say "connections that say nothing keep others waiting only for a while"
$(enter c) timeout 60 python3 - "$(socket_of vc)" <<'END' || fail "the silent ones are not closed"
import select, socket, sys
silent = []
for _ in range(100):
    silent.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    silent[-1].connect(sys.argv[1])
for one in silent:  # each is closed, without a word
    assert one.recv(1) == b""
END
declined c vc

say "programs that are there go on, and are not told that they have lost their session"
LIMIT=20 on a nobody ibv_devinfo -d va >/dev/null || fail "another program cannot open va"
kill -9 "$worker"
wait_until 10 shows va || fail "vdev show: $(ctl vdev show va)"
declined a va
ended "${PID[watcher]}" && fail "the program has ended: $(<"$T/watcher.log")"
chmod a+x "$T/sbin/vrdmad-worker"
all_there() { [[ $(took_over) -ge 1 ]]; }
wait_until 20 all_there || fail "the session is not taken over"
wait_until 10 is_watched || fail "the program has no session: $(ctl vdev show va)"
ended "${PID[watcher]}" && fail "the program has ended: $(<"$T/watcher.log")"
grep -q DEVICE_FATAL "$T/watcher.log" && fail "the program has lost its device"

say "with a worker, nothing is left of it"
for space in b c; do
  LIMIT=20 on $space nobody ibv_devinfo -d "v$space" >/dev/null || fail "v$space cannot be opened"
  ctl vdev show "v$space" | grep 'no worker' && fail "vdev show still says that there is none"
done
ctl doctor --netns "$(ns b)" >"$T/doctor.log" 2>&1 || fail "doctor: $(<"$T/doctor.log")"
grep -qE "^ok +session" "$T/doctor.log" || fail "doctor: $(<"$T/doctor.log")"
kill_programs watcher
