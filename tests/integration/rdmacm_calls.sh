#!/bin/bash
# rdmacm_calls.sh direct|mediated PROGRAM: calls of rdma_cm that no program at hand makes, and those
# that only rdma_xclient makes.
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

for type in r x; do
  listening_server a root rdma_xserver -c $type
  on b root rdma_xclient -s 10.0.0.1 -c $type || fail "rdma_xclient -c $type ends with status $?"
  reap server 10
  [[ $REAPED -eq 0 ]] || fail "rdma_xserver -c $type ends with status $REAPED"
done
