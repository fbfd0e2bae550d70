#!/bin/bash
# peers.sh: with which addresses the members of a fabric may talk on the network: those that the operator named, both ways, for
# data and for rdma_cm, at once and after a restart. What another vdevice or stranger sends is dropped and counted.
another=$1
. "$(dirname "$0")/roce_pair.sh"

refused() { # PATTERN COMMAND...: it is, in one sentence that has the pattern
  if "${@:2}" >"$T/refused" 2>&1; then fail "${*:2}: is done"; fi
  grep -qE "$1" "$T/refused" || fail "${*:2}: the refusal says: $(<"$T/refused")"
  [[ $(wc -l <"$T/refused") -eq 1 ]] || fail "${*:2}: not one sentence: $(<"$T/refused")"
}
silence() { # COMMAND...: as meet, and the client fails
  tcp_server b root "$@"
  LIMIT=${LIMIT:-5} on a root "$@" 10.0.0.2 >"$T/client.log" 2>&1 && fail "$*: they talk"
  kill_programs server
}
peers() { ctl fabric list "$1" -o json | python3 -c 'import json, sys; print(*json.load(sys.stdin)[0]["peers"])'; }
gid=$(index va ::ffff:10.0.0.1)

say "bad input is refused in a sentence"
refused "'10.0.0.300/24' is not an address prefix such as 10.0.0.0/24" ctl fabric set left --peers 10.0.0.300/24
refused "at most 64 prefixes of peers, not 65" ctl fabric set left --peers "$(seq -f '10.0.%g.0/24' -s , 65)"
refused "fabric set: give --reach, --peers, or both" ctl fabric set left
[[ -z $(peers left) ]] || fail "left has the peers $(peers left)"

say "peers that both fabrics name talk"
ctl fabric set left --reach network --peers 10.0.0.2,fd00::/64 >/dev/null
ctl fabric set right --reach network --peers 10.0.0.0/24 >/dev/null
[[ $(peers left) == "10.0.0.2/32 fd00::/64" ]] || fail "left has the peers $(peers left)"
[[ $(ctl vdev show va) =~ peers\ +10\.0\.0\.2/32,?\ fd00::/64 ]] || fail "va is shown as $(ctl vdev show va)"
pingpong 10.0.0.2 rc -c -g "$gid"
pingpong 10.0.0.2 ud -g "$gid" -s 900
cm b a "rping -s -a 10.0.0.2 -C 5 -V" "rping -c -a 10.0.0.2 -C 5 -V"

say "a group needs its prefix, too"
in_group() { ip netns exec "$(ns b)" ip maddress show dev eth0 | grep -q 239.1.2.3; }
spawn server b root mckey -m 239.1.2.3 -b 10.0.0.2 -C 20
joined() { ctl qp list vb | grep -q "UD *RTS"; }
wait_until 20 joined || fail "vb has no queue pair: $(ctl qp list vb)"
in_group && fail "vb is in a group that is no peer of its fabric"
ctl fabric set right --peers 10.0.0.0/24,239.0.0.0/8 >/dev/null
wait_until 20 in_group || fail "vb does not join the group that became a peer"
ctl fabric set right --peers 10.0.0.0/24 >/dev/null
out_of_group() { ! in_group; }
wait_until 20 out_of_group || fail "vb stays in a group that is no peer any more"
kill_programs server

say "a queue pair does not become that of another address behind RTR"
ctl fabric set left --peers 10.0.0.2,10.0.7.0/24 >/dev/null
[[ $(on a root "$another" "$gid" 10.0.0.2 10.0.7.9) == moved ]] || fail "a peer is refused in SQD"
[[ $(on a root "$another" "$gid" 10.0.0.2 10.0.8.9) == refused ]] || fail "SQD leads to an address that is no peer"

say "no packet leaves for an address that the sender's fabric does not name"
ctl fabric set left --peers 10.9.0.0/16 >/dev/null
before=$(stat_of va network_packets_sent)
silence ibv_rc_pingpong -p $PORT -g "$gid" -n 20
silence ibv_ud_pingpong -p $PORT -g "$gid" -n 20
spawn server b root rping -s -a 10.0.0.2 -C 5
if on a root rping -c -a 10.0.0.2 -C 5 >"$T/client.log" 2>&1; then fail "rping: they talk"; fi
grep -qE "ADDR_ERROR|No route to host|error" "$T/client.log" || fail "rping: $(<"$T/client.log")"
kill_programs server
[[ $(stat_of va network_packets_sent) == "$before" ]] || fail "va has sent packets"
ctl doctor --netns "$(ns a)" --to 10.0.0.2 >"$T/doctor.log" 2>&1 && fail "doctor finds nothing"
grep -q "10.0.0.2 is no peer of fabric left" "$T/doctor.log" || fail "doctor: $(<"$T/doctor.log")"

say "what comes from an address that the receiver's fabric does not name is dropped and counted"
ctl fabric set left --peers all >/dev/null
ctl fabric set right --peers 10.0.0.0/32,fd00::/64 >/dev/null
silence ibv_rc_pingpong -p $PORT -g "$gid" -n 20
[[ $(stat_of vb network_events_rx_no_peer) -eq 0 ]] || fail "a queue pair that is not connected gets datagrams"
silence ibv_ud_pingpong -p $PORT -g "$gid" -n 20
dropped=$(stat_of vb network_events_rx_no_peer)
[[ $dropped -gt 0 ]] || fail "no datagram is counted"
before=$(stat_of daemon qp1_no_peer)
spawn server b root rping -s -a 10.0.0.2 -C 5
LIMIT=2 on a root rping -c -a 10.0.0.2 -C 5 >"$T/client.log" 2>&1 && fail "rping: they talk"
kill_programs server
[[ $(stat_of daemon qp1_no_peer) -gt $before ]] || fail "no MAD is counted"

say "connections with those that are no peers any more end, others go on"
ctl fabric set right --peers 10.0.0.1,fd00::1 >/dev/null
tcp_server b root ib_write_bw -D 300 -p $PORT -x "$gid"
spawn client a root ib_write_bw -D 300 -p $PORT -x "$gid" 10.0.0.2
wait_until 20 in_use || fail "the list is: $(ctl qp list)"
ctl fabric set right --peers fd00::/64,10.0.0.0/24 >/dev/null
in_use || fail "a connection with a peer has ended: $(ctl qp list)"
ctl fabric set right --peers fd00::/64 >/dev/null
reap client 20
[[ $REAPED -ne 0 ]] || fail "the client says: $(<"$T/client.log")"
kill_programs server

say "a restart keeps them"
kill_daemon
start_daemon
[[ $(peers right) == "fd00::/64" && -z $(peers left) ]] || fail "the peers are $(peers right), $(peers left)"
silence ibv_rc_pingpong -p $PORT -g "$gid" -n 20
ctl fabric set right --peers all >/dev/null
pingpong 10.0.0.2 rc -c -g "$gid"
