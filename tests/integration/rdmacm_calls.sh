#!/bin/bash
# rdmacm_calls.sh direct|mediated PROGRAM NO_MEMORY FORKS: calls of rdma_cm that no available program
# makes, those that only rdma_xclient makes, those of a program without memory (rdmacm_no_memory.cc)
# and of children (rdmacm_forks.cc).
#
#     netns a                 netns b
#   +-----------+           +-----------+
#   | va -- eth0|== veth ===|eth0 -- vb |
#   +-----------+           +-----------+
. "$(dirname "$0")/lib.sh"
mode=$1 binary=$2
setup
start_daemon
two_vdevices "$mode"
add_ipv6
cp "$binary" "$T/calls"
LIMIT=60 on a root "$T/calls" 10.0.0.1 fd00::1

cp "$3" "$T/no_memory"
LIMIT=30 on a root "$T/no_memory" 10.0.0.1 || fail "without memory: status $?"
cp "$4" "$T/forks"
LIMIT=60 on a root "$T/forks" 10.0.0.1 || fail "children: status $?"

for type in r x; do
  listening_server a root rdma_xserver -c $type
  on b root rdma_xclient -s 10.0.0.1 -c $type || fail "rdma_xclient -c $type ends with status $?"
  reap server 10
  [[ $REAPED -eq 0 ]] || fail "rdma_xserver -c $type ends with status $REAPED"
done

say "a disconnected program is notified"
cookie=$(cookie_of a)
mkdir -p "$T/crowded/netns/$cookie"
spawn crowded a root python3 -c '
import socket, sys
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.bind(sys.argv[1])
server.listen()
while True:
    server.accept()[0].close()' "$T/crowded/netns/$cookie/rdma_cm"
wait_until 10 test -S "$T/crowded/netns/$cookie/rdma_cm" || fail "nobody listens"
status=0
LIMIT=20 on a root env VRDMA_RUN_DIR="$T/crowded" rping -s -a 10.0.0.1 >"$T/rping.log" 2>&1 || status=$?
[[ $status -ne 0 && $status -ne 124 ]] || fail "rping ends with status $status: $(<"$T/rping.log")"
kill "${PID[crowded]}"
reap crowded 5

if [[ -x $(dirname "$VRDMAD")/vrdmad-worker ]]; then  # else its workers are threads
  say "a program whose session has ended begins another one"
  WORKERS_END=1  # because they are killed
  spawn outlive a root "$T/calls" outlive 10.0.0.1
  wait_until 10 grep -qs bound "$T/outlive.log" || fail "it does not begin"
  crash_workers outlive
  reap outlive 20
  [[ $REAPED -eq 0 ]] || fail "it ends with status $REAPED: $(<"$T/outlive.log")"
fi
