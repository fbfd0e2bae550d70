#!/bin/bash
# speed.sh [ROUNDS]: how fast the device of a virtual machine is, beside TCP in the same machine and beside a program of the
# host in the machine's place, in turn. It prints the medians. By hand, on a machine that does nothing else.
. "$(dirname "$0")/stage.sh"
rounds=${1:-3} seconds=${SECONDS_OF_EACH:-4}
median() { sort -g "$T/$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
# figure FIELD: of perftest's client.
figure() { awk -v field="$1" '/^ *[0-9]+ /{ print $field }' "$T/client.log"; }
# machine NAME FIELD COMMAND...: from a program of the host to one in the machine.
machine() {
  there_serves "${@:3}" -d "$DEVICE_B" -x "$INDEX_B" -p $PORT -F || fail "$3 does not listen"
  on a nobody "${@:3}" -d va -x "$INDEX_A" -p $PORT -F 10.0.0.2 >"$T/client.log" 2>&1 || fail "$3: $(<"$T/client.log")"
  wait_until 60 there_ended || fail "$3 does not end in the machine"
  figure "$2" | tee -a "$T/machine_$1"
}
# from_machine NAME FIELD COMMAND...: the other way.
from_machine() {
  spawn server a nobody "${@:3}" -d va -x "$INDEX_A" -p $PORT -F
  wait_until 20 listens server || fail "$3 does not listen"
  in_machine "${@:3}" -d "$DEVICE_B" -x "$INDEX_B" -p $PORT -F 10.0.0.1 >"$T/client.log" 2>&1 || fail "$3: $(<"$T/client.log")"
  reap server 20
  figure "$2" | tee -a "$T/from_machine_$1"
}
# host NAME FIELD COMMAND...: to one of the host on the same vdevice; they find each other by the veth's address.
host() {
  spawn server b nobody "${@:3}" -d vb -x "$(gid_index b vb 10.0.0.2)" -p $PORT -F
  wait_until 20 listens server || fail "$3 does not listen"
  on a nobody "${@:3}" -d va -x "$INDEX_A" -p $PORT -F 10.1.0.2 >"$T/client.log" 2>&1 || fail "$3: $(<"$T/client.log")"
  reap server 20
  figure "$2" | tee -a "$T/host_$1"
}
# tcp NAME TEST SIZE UNITS: what qperf measures last, in units of so many bytes a second or ns.
tcp() {
  on a nobody qperf -lp 19765 -t "$seconds" -uu -m "$3" 10.0.0.2 "$2" >"$T/qperf.log" 2>&1 || fail "qperf: $(<"$T/qperf.log")"
  awk -v units="$4" '$2 == "=" { value = $3 } END { print value / units }' "$T/qperf.log" | tee -a "$T/tcp_$1"
}
start_device
boot_guest
# A way from a to b for TCP alone, beside the guest's.
ip_in a link add way type veth peer name way netns "$(ns b)"
ip_in a address add 10.1.0.1/24 dev way
ip_in b address add 10.1.0.2/24 dev way
ip_in a link set way up
ip_in b link set way up
LIMIT=100000 there qperf -lp 19765
on a nobody qperf -lp 19765 --wait 60 10.0.0.2 conf >/dev/null
for ((round = 0; round < rounds; ++round)); do
  tcp bw tcp_bw 64K 1e6
  for side in machine host; do
    $side bw 4 ib_write_bw -s 1048576 -D "$seconds"
    $side small_bw 4 ib_write_bw -s 4096 -D "$seconds"
    $side sleeping 5 ib_send_lat -e -s 8 -n 500
    $side polling 5 ib_send_lat -s 8 -n 500
  done
  from_machine bw 4 ib_write_bw -s 1048576 -D "$seconds"
  from_machine small_bw 4 ib_write_bw -s 4096 -D "$seconds"
  tcp lat tcp_lat 8 1e3
done
for file in tcp_bw {machine,from_machine,host}_{bw,small_bw} tcp_lat {machine,host}_{sleeping,polling}; do
  echo "$file $(median "$file")"
done
shut_down
