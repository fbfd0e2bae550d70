#!/bin/bash
# flood.sh EXCHANGE LISTENER: a stranger floods a vdevice with packets that no queue pair may see.
#
#     netns c                  netns d                     netns a                 netns b
#   +-----------+  veth  +----------------+          +----------------+  veth  +----------------+
#   | flood.py  |=======>| eth0 -- vd     |          | va -- eth0     |========| eth0 -- vb     |
#   | 10.0.2.9  |        | 10.0.2.1       |          | 10.0.0.1       |        | 10.0.0.2       |
#   +-----------+        +----------------+          +----------------+        +----------------+
#     no vdevice           LISTENER receives           EXCHANGE compares all bytes
#                          datagrams
#
# vd and va are in one fabric, so that one worker serves both. Every packet is counted, the sender gets no more bytes
# than it sends, and the traffic between va and vb goes on.
. "$(dirname "$0")/lib.sh"
here=$(dirname "$(realpath "$0")")
setup
install -m 755 "$1" "$T/exchange"
install -m 755 "$2" "$T/listener"
start_daemon
netns_add a b c d
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
join c eth0 10.0.2.9/24 d eth0 10.0.2.1/24
vdev_create va a eth0 --tenant red --fabric left
vdev_create vb b eth0 --tenant blue --fabric right
vdev_create vd d eth0 --tenant green --fabric left
for fabric in left right; do ctl fabric set $fabric --reach network >/dev/null; done
spawn listener d nobody "$T/listener" vd
wait_until 20 grep -qs 'queue pair' "$T/listener.log" || fail "no datagrams are received"
qpn=$(sed -n 's/queue pair //p' "$T/listener.log")

link() { ip_in c -j -s link show eth0 | python3 -c '
import json, sys
print(json.load(sys.stdin)[0]["stats64"][sys.argv[1]][sys.argv[2]])' "$@"; }
udp() { $(enter d) cat /proc/net/snmp | awk -v name="$1" '
  $1 == "Udp:" && !at { for (i = 2; i <= NF; ++i) if ($i == name) at = i; next } $1 == "Udp:" { print $at }'; }

sent_before=$(link tx bytes) answered_before=$(link rx bytes) dropped_before=$(link tx dropped)
$(enter c) python3 "$here/flood.py" 10.0.2.1 "$qpn" >"$T/flood.log" 2>&1 &
PID[flood]=$!
wait_until 10 grep -qs floods "$T/flood.log" || fail "there is no flood"

say "the traffic of another vdevice goes on"
tcp_server a nobody "$T/exchange" --device va --port $PORT
on b nobody "$T/exchange" --device vb --port $PORT --tests rc.read,rc.both,rc.in_flight,rc.srq 10.0.0.1 \
  >"$T/client.log" 2>&1 || fail "the exchange is disturbed: $(<"$T/client.log")"
reap server 20
cat "$T/client.log"
[[ $REAPED -eq 0 ]] || fail "the exchange is disturbed: $(<"$T/server.log")"

kill -TERM "${PID[flood]}"
reap flood 20
[[ $REAPED -eq 0 ]] || fail "the flood ended too early"
say "the flood: $(tail -n 1 "$T/flood.log")"
sleep 1  # what is in sockets is read
sent() { tail -n 1 "$T/flood.log" | python3 -c '
import json, sys
sent = json.load(sys.stdin)
print(sum(sent.get(kind, 0) for kind in sys.argv[1:]))' "$@"; }
[[ $(sent refused) -eq 0 ]] || fail "the stranger got ICMP messages"
say "the counters of vd: $(ctl stats vd | awk '/network_events/ && $NF > 0 { printf "%s %s, ", $2, $NF }') $(
  udp RcvbufErrors) found no room in a socket"
unseen=$(($(udp RcvbufErrors) + $(link tx dropped) - dropped_before))  # by the socket, and by the kernel before it
data=(garbage icrc unknown_rc unknown_uc unknown_ud cnp service qkey)
counters=(network_events_rx_{malformed,icrc_encapsulated,unknown_qp,bad_service,bad_qkey})
got=$(stat_of vd "${counters[@]}") was=$(sent "${data[@]}")
# The kernel drops those of queue pair 1, too, so what found no room has an upper limit.
[[ $got -le $was && $((got + unseen)) -ge $was ]] || fail "$was packets were sent to the worker, $got are counted"
for event in icrc_encapsulated malformed unknown_qp bad_qkey; do
  [[ $(stat_of vd network_events_rx_$event) -gt 0 ]] || fail "rx_$event is not counted"
done
[[ $(stat_of vd network_packets_sent) -eq 0 ]] || fail "the worker answers a stranger"
sent=$(($(link tx bytes) - sent_before)) answered=$(($(link rx bytes) - answered_before))
say "$sent bytes were sent, $answered answered"
[[ $answered -le $sent ]] || fail "a stranger gets more bytes than it sends"
for v in va vb; do
  [[ $(stat_of $v network_events_rx_{malformed,icrc_encapsulated}) -eq 0 ]] || fail "packets of the flood are counted at $v"
done
# What was sent again may come when its queue pair has been destroyed.
for pair in "va vb" "vb va"; do
  read -r v peer <<<"$pair"
  [[ $(stat_of $v network_events_rx_unknown_qp) -le $(stat_of $peer network_events_retransmitted) ]] ||
    fail "packets of the flood are counted at $v"
done

say "the worker serves vd as before"
ended "${PID[listener]}" && fail "the program of the flooded vdevice has ended"
on d root ibv_devinfo -d vd >/dev/null || fail "the flooded vdevice cannot be opened"
kill "${PID[listener]}"
reap listener 10
