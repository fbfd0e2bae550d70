#!/bin/bash
# speed.sh [ROUNDS]: how fast a vdevice of a virtual machine is, beside TCP in the same machine, in turn. It prints the medians
# and, of the vdevices, what was sent again. By hand, on a machine that does nothing else.
. "$(dirname "$0")/stage.sh"
rounds=${1:-3} seconds=${SECONDS_OF_EACH:-4}
median() { sort -g "$T/$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
# sockets NAME TEST SIZE UNITS: what qperf measures last, in units of so many bytes a second or ns.
sockets() {
  on a nobody qperf -lp 19765 -t "$seconds" -uu -m "$3" 10.0.0.2 "$2" >"$T/qperf.log" 2>&1 || fail "qperf: $(<"$T/qperf.log")"
  awk -v units="$4" '$2 == "=" { value = $3 } END { print value / units }' "$T/qperf.log" | tee -a "$T/$1"
}
# vdevice NAME FIELD COMMAND...: the figure in that field of the last line but one of perftest's client.
vdevice() {
  there_serves "${@:3}" -d vm0 -x "$INDEX_B" -p $PORT -F || fail "$3 does not listen"
  on a nobody "${@:3}" -d va -x "$INDEX_A" -p $PORT -F 10.0.0.2 >"$T/client.log" 2>&1 || fail "$3: $(<"$T/client.log")"
  wait_until 60 there_ended || fail "$3 does not end in the machine"
  awk -v field="$2" '/^ *[0-9]+ /{ print $field }' "$T/client.log" | tee -a "$T/$1"
}
counters() { ctl stats va; in_machine vrdmactl stats vm0; }
LIMIT=100000 there qperf -lp 19765
on a nobody qperf -lp 19765 --wait 60 10.0.0.2 conf >/dev/null
for ((round = 0; round < rounds; ++round)); do
  sockets tcp_bw tcp_bw 64K 1e6
  vdevice rdma_bw 4 ib_write_bw -s 65536 -D "$seconds"
  sockets tcp_lat tcp_lat 8 1e3
  vdevice rdma_lat 5 ib_send_lat -e -s 8 -n 500
  sockets udp_bw udp_bw 1024 1e6
done
for file in tcp_bw rdma_bw tcp_lat rdma_lat udp_bw; do echo "$file $(median "$file")"; done
counters | grep -E 'network_(packets|events_(retrans|probes|local_ack|dupl|packet_seq|out))'
shut_down
