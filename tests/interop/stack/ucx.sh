#!/bin/bash
# ucx.sh direct|mediated: UCX's performance test over its transports for verbs, with its defaults.
#
#     netns a                         netns b
#   +------------------+            +------------------+
#   | ucx_perftest     |    veth    |     ucx_perftest |   rc_verbs (connected by ud_verbs), and
#   |   va ------ eth0 |============| eth0 ------ vb   |   ud_verbs alone; every kind of operation,
#   | 10.0.0.1         |            |         10.0.0.2 |   eager and by rendezvous
#   +------------------+            +------------------+
. "$(dirname "$0")/lib.sh"
mode=$1
setup
command -v ucx_perftest >/dev/null || tell_and_skip UCX "$mode" 1 "ucx-utils is not installed"
start_daemon
two_vdevices "$mode"

# No time is asserted; where three processes share two cores, an exchange may take 10 ms.
for transport in rc_verbs,ud_verbs,self ud_verbs,self; do
  SETTINGS=(env UCX_TLS="$transport")
  for run in tag_lat:8 tag_bw:65536 ucp_am_lat:8 stream_lat:8 ucp_put_lat:65536 ucp_get:65536 \
    ucp_fadd:8; do
    meet "$transport $run" \
      ucx_perftest -p $PORT -t "${run%:*}" -s "${run#*:}" -n 50 -w 5
  done
done
# It reads /sys/class/infiniband/va/device and warns of what it cannot.
exec_in va ucx_info -d >"$T/info.log" 2>&1 || fail "ucx_info: $(tail -3 "$T/info.log")"
grep -q 'Device: va:1' "$T/info.log" || fail "ucx_info does not list va"
if grep -h 'UCX  *WARN' "$T"/*.log; then fail "UCX warns"; fi
tell UCX "$mode" $PASSED $FAILED_RUNS 0
[[ $FAILED_RUNS -eq 0 ]] || fail "$FAILED_RUNS runs of UCX failed"
