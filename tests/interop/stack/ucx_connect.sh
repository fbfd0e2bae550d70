#!/bin/bash
# ucx_connect.sh direct|mediated: programs of UCX that connect by address, by way of rdma_cm.
#
#     netns a                         netns b
#   +------------------+            +------------------+
#   | ucx_connect      |    veth    |      ucx_connect |
#   |   va ------ eth0 |============| eth0 ------ vb   |
#   | 10.0.0.1         |            |         10.0.0.2 |
#   +------------------+            +------------------+
. "$(dirname "$0")/lib.sh"
mode=$1
setup
[[ -e /usr/include/ucp/api/ucp.h ]] ||
  tell_and_skip "UCX by rdma_cm" "$mode" 1 "libucx-dev is not installed"
gcc -O1 -Wall -Wextra -Werror -o "$T/ucx_connect" "$(dirname "$0")/ucx_connect.c" -lucp -lucs
start_daemon
two_vdevices "$mode"
readonly ROUNDS=41  # each fourth message is long, and sent when the receiver asks for it

for transport in rc_verbs ud_verbs; do
  SETTINGS=(env UCX_TLS="$transport,self" UCX_SOCKADDR_TLS_PRIORITY=rdmacm)
  rm -f "$T/server.log"  # of the transport before
  exec_behind server va "${SETTINGS[@]}" "$T/ucx_connect" 10.0.0.1 7471 $ROUNDS "$T/$transport"
  wait_until 20 grep -q listening "$T/server.log" ||
    fail "$transport: the server does not listen: $(<"$T/server.log")"
  wait_until 20 listening va || fail "$transport: the server does not listen by rdma_cm"
  exec_behind client vb "${SETTINGS[@]}" "$T/ucx_connect" 10.0.0.1 7471 $ROUNDS "$T/$transport" client
  both_end "$transport"
done
tell "UCX by rdma_cm" "$mode" $PASSED $FAILED_RUNS 0
[[ $FAILED_RUNS -eq 0 ]] || fail "$FAILED_RUNS runs of UCX failed"
