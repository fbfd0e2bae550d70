#!/bin/bash
# seats.sh: a user without privilege takes all connections that can be had, by many vdevices, and says nothing. Another
# tenant opens its device meanwhile, and so does a new one, whose worker must be started. Then the silent ones end.
. "$(dirname "$0")/../lib.sh"
setup
VDEVICES=16 CONNECTIONS=200
ulimit -n 2000  # so that all connections together are more than the broker may hold
start_daemon
two_vdevices direct
for ((i = 0; i < VDEVICES; ++i)); do
  netns_add "e$i"
  loose "e$i" eth0
  ip_in "e$i" address add 198.51.100.$i/32 dev eth0
  vdev_create "ve$i" "e$i" eth0 --tenant "evil$i" --fabric evil
done

cat >"$T/silent.py" <<'PY'
import os, socket, sys, time
held = []
for _ in range(int(sys.argv[2])):
    one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.setblocking(False)
    try:
        one.connect(sys.argv[1])
    except BlockingIOError:
        time.sleep(0.01)
    held.append(one)
print("connected", flush=True)
while not os.path.exists("over"):
    time.sleep(0.1)
PY
for ((i = 0; i < VDEVICES; ++i)); do
  spawn "silent$i" "e$i" nobody python3 "$T/silent.py" "$(socket_of "ve$i")" $CONNECTIONS
done
all_connected() { [[ $(cat "$T"/silent*.log | grep -c connected) -eq $VDEVICES ]]; }
wait_until 60 all_connected || fail "they do not connect"

LIMIT=10 on a root ibv_devinfo -d va >/dev/null || fail "a device cannot be opened beside silent connections"
netns_add late
loose late eth0
ip_in late address add 203.0.113.1/32 dev eth0
vdev_create vlate late eth0 --tenant late
LIMIT=10 on late root ibv_devinfo -d vlate >/dev/null || fail "no worker could be started beside silent connections"
say "descriptors of the broker: $(ls "/proc/$(helper broker)/fd" | wc -l)"
[[ $(ls "/proc/$(helper broker)/fd" | wc -l) -lt 1800 ]] || fail "the broker has no descriptors left"

have_ended() { [[ $(ls "/proc/$(helper broker)/fd" | wc -l) -lt 300 ]]; }
wait_until 60 have_ended || fail "silent connections do not end: $(ls "/proc/$(helper broker)/fd" | wc -l) descriptors"
touch "$T/over"
for ((i = 0; i < VDEVICES; ++i)); do reap "silent$i" 10; done
