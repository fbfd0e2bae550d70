#!/bin/bash
# node_exporter.sh direct|mediated: the infiniband collector of Prometheus' node exporter, as nobody.
#
#     netns a                         netns b
#   +------------------+            +------------------+
#   | node exporter,   |    veth    |      ib_write_bw |   what it serves of va is what
#   | ib_write_bw      |            |                  |   ib_write_bw has written
#   |   va ------ eth0 |============| eth0 ------ vb   |
#   | 10.0.0.1         |            |         10.0.0.2 |
#   +------------------+            +------------------+
. "$(dirname "$0")/lib.sh"
mode=$1
setup
command -v prometheus-node-exporter >/dev/null ||
  tell_and_skip node_exporter "$mode" 1 "prometheus-node-exporter is not installed"
start_daemon
two_vdevices "$mode"
# shellcheck disable=SC2046  # words
exec_behind exporter va $(user_prefix nobody) prometheus-node-exporter --collector.disable-defaults \
  --collector.infiniband --web.listen-address=127.0.0.1:9100
scrape() { $(enter a) curl -sS --max-time 10 http://127.0.0.1:9100/metrics >"$T/metrics"; }
wait_until 10 scrape 2>/dev/null || fail "it does not serve: $(tail -3 "$T/exporter.log")"
value() { # METRIC: of va, as an integer
  scrape
  awk -v name="node_infiniband_$1{device=\"va\",port=\"1\"}" '$1 == name { printf "%.0f\n", $2 }' "$T/metrics"
}
is() { [[ $(value "$1") == "$2" ]]; }
check() { # METRIC VALUE
  if wait_until 3 is "$@"; then
    PASSED=$((PASSED + 1))
  else
    echo "FAILED: $1 is '$(value "$1")', not $2"
    FAILED_RUNS=$((FAILED_RUNS + 1))
  fi
}
grep -q '^node_scrape_collector_success{collector="infiniband"} 1$' "$T/metrics" ||
  fail "the collector does not succeed: $(tail -3 "$T/exporter.log")"
check state_id 4
check physical_state_id 5
check rate_bytes_per_second 10000000000
check port_data_received_bytes_total 0
meet "ib_write_bw" ib_write_bw -F -n 100 -s 65536 -Q 1
check port_data_received_bytes_total $((100 * 65536))
check port_packets_received_total 100
check unicast_packets_received_total 100
check port_data_transmitted_bytes_total 0
check link_downed_total 0
grep -q 'node_infiniband_info{.*device="va",.*hca_type="vrdma"' "$T/metrics" || fail "va has no info"
kill "${PID[exporter]}"
reap exporter 5
tell node_exporter "$mode" $PASSED $FAILED_RUNS 0
[[ $FAILED_RUNS -eq 0 ]] || fail "$FAILED_RUNS metrics are wrong"
