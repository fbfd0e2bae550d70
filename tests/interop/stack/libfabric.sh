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
start_daemon
two_vdevices "$mode"

# What ofi_rxm asks of a completion queue grows with the peers it is told to expect; 256 by default,
# which is more than a vdevice gives (cqe).
#
# rxm_ep_do_progress() (prov/rxm/src/rxm_cq.c) finds its completion queue empty, looks at the clock, and every 10 ms by
# default calls rxm_conn_progress(), which reads rdma_cm's events. A program that loses the processor between these two
# finds the disconnect first, destroys the queue pair, and with it, as on an adapter, the completion of the
# last message, for which it then waits without end. At five looks a second that is rare.
SETTINGS=(env FI_UNIVERSE_SIZE=16 FI_OFI_RXM_CM_PROGRESS_INTERVAL=200000)
for run in verbs:msg verbs:rdm "verbs;ofi_rxm:rdm"; do
  meet "fi_pingpong $run" fi_pingpong -B $PORT -P $PORT -p "${run%:*}" -e "${run#*:}" -I 10
  PORT=$((PORT + 1))  # the client's port of the last run is in TIME_WAIT
done
tell libfabric "$mode" $PASSED $FAILED_RUNS 0
[[ $FAILED_RUNS -eq 0 ]] || fail "$FAILED_RUNS runs of fi_pingpong failed"
