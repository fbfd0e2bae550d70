#!/bin/bash
# roce.sh: Debian's programs between two tenants that reach the network, and what they put on the wire.
. "$(dirname "$0")/roce_pair.sh"

say "a fabric stays on its host unless the operator wants it otherwise"
if on a root ibv_rc_pingpong -p $PORT -g "$(index va ::ffff:10.0.0.1)" -n 1 -t 1 10.0.0.2 >"$T/client.log" 2>&1; then
  fail "there is no server"
fi
tcp_server b root ibv_rc_pingpong -p $PORT -g "$(index vb ::ffff:10.0.0.2)" -n 20
LIMIT=3 on a root ibv_rc_pingpong -p $PORT -g "$(index va ::ffff:10.0.0.1)" -n 20 10.0.0.2 >"$T/client.log" 2>&1 &&
  fail "two tenants meet on a network that they may not reach"
kill_programs server
for fabric in left right; do ctl fabric set $fabric --reach network >/dev/null; done

begin_capture
# The kernel makes segments before the capture sees them, not behind it.
for space in a b; do ip_in $space link set eth0 gso_max_segs 1; done
for version in 4 6; do
  say "IPv$version: the pingpong programs, with data that is compared"
  near=::ffff:10.0.0.1 far=::ffff:10.0.0.2
  [[ $version -eq 4 ]] || near=fd00::1 far=fd00::2
  gid=$(index va $near)
  [[ $gid == "$(index vb $far)" ]] || fail "the tables differ"
  for mtu in 256 1024 4096; do pingpong 10.0.0.2 rc -c -g "$gid" -m $mtu -s 20000; done
  pingpong 10.0.0.2 rc -c -e -g "$gid"
  pingpong 10.0.0.2 uc -g "$gid" -s 8000
  pingpong 10.0.0.2 ud -g "$gid" -s 900
  pingpong 10.0.0.2 srq -g "$gid" -s 8000
done
end_capture
say "$(tail -n 1 "$T/capture.log")"
grep -qE '^[1-9][0-9]{3,} packets' "$T/capture.log" || fail "few packets were on the wire"
say "Wireshark reads the first of them as we do"
tshark -r "$T/roce.pcap" -T fields -e infiniband.bth.opcode -e _ws.malformed >"$T/tshark" 2>"$T/tshark.log" ||
  fail "tshark: $(<"$T/tshark.log")"
[[ $(awk -F '\t' '$1 == "" || $2 != ""' "$T/tshark" | wc -l) -eq 0 ]] || fail "malformed: $(awk -F '\t' '$2 != ""' "$T/tshark" | head)"
read_as=$(awk -F '\t' '{ n[$1]++ } END { for (i in n) printf "0x%02x:%d\n", i, n[i] }' "$T/tshark" | sort | xargs)
[[ "written: $read_as" == "$(grep written: "$T/capture.log")" ]] || fail "tshark has $read_as, $(grep written: "$T/capture.log")"
for space in a b; do ip_in $space link set eth0 gso_max_segs 64; done

say "perftest: all operations, large messages"
for command in "ib_write_bw -s 1048576 -n 50" "ib_read_bw -s 1048576 -n 50" "ib_send_bw -s 65536 -n 100" \
  "ib_write_lat -n 100" "ib_send_lat -n 100" "ib_read_lat -n 100" "ib_atomic_lat -n 100" "ib_atomic_bw -n 100"; do
  # shellcheck disable=SC2086  # words
  meet 10.0.0.2 $command -p $PORT -x "$(index va ::ffff:10.0.0.1)"
done

say "XRC is refused at once, because no packet carries it"
gid=$(index va ::ffff:10.0.0.1)
tcp_server b root ibv_xsrq_pingpong -p $PORT -g "$gid"
LIMIT=10 on a root ibv_xsrq_pingpong -p $PORT -g "$gid" 10.0.0.2 >"$T/client.log" 2>&1 && fail "XRC reaches the network"
grep -q "modify .* to RTR" "$T/client.log" || fail "XRC ends with $(<"$T/client.log")"
reap server 10
[[ $REAPED -ne 0 ]] || fail "the server of XRC: $(<"$T/server.log")"

say "the operator sees each queue pair, and how it gets on"
tcp_server b root ib_write_bw -D 300 -p $PORT -x "$(index va ::ffff:10.0.0.1)"
spawn client a root ib_write_bw -D 300 -p $PORT -x "$(index va ::ffff:10.0.0.1)" 10.0.0.2
wait_until 20 in_use || fail "the list is: $(ctl qp list)"
kill_programs client server

say "rdma_cm: MADs of queue pair 1 on the wire, both ways"
cm b a "rping -s -a 10.0.0.2 -C 20 -V" "rping -c -a 10.0.0.2 -C 20 -V"
cm a b "rping -s -a 10.0.0.1 -C 20 -V" "rping -c -a 10.0.0.1 -C 20 -V"
cm b a "rping -s -a fd00::2 -C 20 -V" "rping -c -a fd00::2 -C 20 -V"
cm b a "ucmatose" "ucmatose -s 10.0.0.2"
cm b a "udaddy" "udaddy -s 10.0.0.2"
cm a b "udaddy" "udaddy -s 10.0.0.1"
listening_server b nobody cmtime -b 10.0.0.2  # it does not end by itself
on a nobody cmtime -s 10.0.0.2 -c 50 >"$T/client.log" 2>&1 || fail "cmtime: $(<"$T/client.log")"
grep -qE '^disconnect +:' "$T/client.log" || fail "cmtime: $(<"$T/client.log")"
kill_programs server
[[ $(stat_of daemon qp1_sent) -ge 100 && $(stat_of daemon qp1_received) -ge 100 ]] || fail "MADs are not counted: $(ctl stats daemon)"
# Those to a program that has just ended are lost.
[[ $(stat_of daemon qp1_icrc_errors qp1_malformed qp1_over_rate) -eq 0 ]] || fail "MADs are dropped: $(ctl stats daemon)"

say "sockets over RDMA"
# sockets FAMILY ADDRESS PROGRAM OPTIONS...: its server in b, its client in a.
sockets() {
  listening_server b nobody "$3" -f "$1" -b "$2" "${@:4}"
  on a nobody "$3" -f "$1" -s "$2" "${@:4}" >"$T/client.log" 2>&1 || fail "${*:3}: $(<"$T/client.log")"
  reap server 20
  [[ $REAPED -eq 0 ]] || fail "the server of ${*:3}: $(<"$T/server.log")"
}
for words in "ip 10.0.0.2" "ipv6 fd00::2"; do
  for way in b n a; do  # blocking, nonblocking, with poll
    # shellcheck disable=SC2086  # words
    for program in rstream riostream; do sockets $words $program -T $way -T v -S all -C 10; done
  done
  # shellcheck disable=SC2086
  sockets $words rstream -T r -C 20 -I 5
done
