#!/bin/bash
# libfabric.sh direct|mediated: libfabric's ping-pong over its verbs provider.
#
#     netns a                         netns b
#   +------------------+            +------------------+
#   | fi_pingpong      |    veth    |      fi_pingpong |   connected (msg), and reliable datagrams
#   |   va ------ eth0 |============| eth0 ------ vb   |   (rdm) through ofi_rxm
#   | 10.0.0.1         |            |         10.0.0.2 |
#   +------------------+            +------------------+
. "$(dirname "$0")/lib.sh"
mode=$1
setup
command -v fi_pingpong >/dev/null || tell_and_skip libfabric "$mode" 2 "libfabric-bin is not installed"
# The verbs provider finds and connects its peers by librdmacm alone.
[[ -e $BUILD/lib/vrdma/librdmacm.so.1 ]] ||
  tell_and_skip libfabric "$mode" 2 "needs rdma_cm, and there is no librdmacm.so.1 of vrdma yet"
start_daemon
two_vdevices "$mode"

for endpoint in msg rdm; do
  meet "fi_pingpong -e $endpoint" fi_pingpong -B $PORT -P $PORT -p verbs -e $endpoint -I 100
done
tell libfabric "$mode" $PASSED $FAILED_RUNS 0
[[ $FAILED_RUNS -eq 0 ]] || fail "$FAILED_RUNS runs of fi_pingpong failed"
