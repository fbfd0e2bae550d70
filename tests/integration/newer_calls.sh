#!/bin/bash
# newer_calls.sh direct|mediated PROGRAM: calls of librdmacm that rdma-core 60 and 65 added.
#
#     netns a                 netns b
#   +-----------+           +-----------+
#   | va -- eth0|== veth ===|eth0 -- vb |   vb does nothing: it gives eth0 its carrier
#   +-----------+           +-----------+
. "$(dirname "$0")/lib.sh"
mode=$1 binary=$2
setup
start_daemon
two_vdevices "$mode"
cp "$binary" "$T/newer"
LIMIT=60 on a root "$T/newer" 10.0.0.1 || fail "the program ends with status $?"
