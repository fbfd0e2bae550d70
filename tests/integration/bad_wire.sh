#!/bin/bash
# bad_wire.sh PROGRAM LISTENER [SECONDS [SEED]]: two vdevices whose only link loses, reorders, repeats, corrupts and delays
# packets. PROGRAM is tests/interop/rxe/exchange.cc, which compares every byte and counts completions. LISTENER is
# datagram_listener.cc: while it runs, no socket is closed with packets that were not counted.
#
#     netns a                                            netns b
#   +-----------+                                      +-----------+
#   | server    |    +----------------------------+    |    client |   va, vb: two tenants in two fabrics that
#   | va -- eth0|----| vrdma-bad-wire: two taps   |----|eth0 -- vb |   reach the network, as on two hosts
#   | 10.0.0.1  |    +----------------------------+    | 10.0.0.2  |
#   +-----------+                                      +-----------+
#
# What the wire says it did and what vrdmad and the kernel count must agree to the packet. With SECONDS, each test of
# the program runs so long on the worst wire, and nothing else is done: for long runs by hand.
. "$(dirname "$0")/lib.sh"
exchange=$(realpath "$1") listener=$(realpath "$2") seconds=${3:-0} seed=${4:-$RANDOM}
[[ -w /dev/net/tun ]] || skip "there is no /dev/net/tun, to make taps"
setup
here=$(dirname "$(realpath "$0")")
install -m 755 "$exchange" "$T/exchange"
install -m 755 "$listener" "$T/listener"
start_daemon
netns_add a b

snmp() { $(enter "$1") cat /proc/net/snmp /proc/net/snmp6; }
# begin_wire OPTIONS...: a new link, and the vdevices.
begin_wire() {
  OPTIONS=("$@")
  say "${*:-a perfect wire}"
  bad_wire --seed "$seed" "$@"
  local space number=1
  for space in a b; do
    ip_in $space address add 10.0.0.$number/24 dev eth0
    ip_in $space address add fd00::$number/64 dev eth0 nodad
    ip_in $space link set eth0 up
    snmp $space >"$T/before.$space"
    number=$((number + 1))
  done
  vdev_create va a eth0 --tenant red --fabric left
  vdev_create vb b eth0 --tenant blue --fabric right
  for fabric in left right; do ctl fabric set $fabric --reach network >/dev/null; done
  for space in a b; do
    spawn listener-$space $space nobody "$T/listener" v$space
    wait_until 20 grep -qs 'queue pair' "$T/listener-$space.log" || fail "no datagrams are received"
  done
}

# end_wire: compares and prints the counts, and takes all away.
end_wire() {
  local space
  wait_until 20 stays 0.6 passed || fail "packets come without end"  # what is on its way arrives
  for space in a b; do
    ctl -o json stats "v$space" >"$T/stats.$space"
    snmp $space >"$T/snmp.$space"
    ip_in $space -j -s link show eth0 >"$T/link.$space"
  done
  kill "${PID[listener-a]}" "${PID[listener-b]}"
  kill -INT "${PID[wire]}"
  reap wire 10
  [[ $REAPED -eq 0 ]] || fail "the wire ends with status $REAPED"
  "$here/bad_wire_counts.py" "$T" "${OPTIONS[@]}" || fail "seed $seed: the counts differ: $(<"$T/wire.log")"
  for space in a b; do reap listener-$space 10; done
  wait_until 10 no_vdevices || fail "a vdevice stays, although its interface is gone"
}
no_vdevices() { [[ $(ctl -o json vdev list) == "[]" ]]; }

passed() { # packets, so far
  local space
  for space in a b; do
    ip_in $space -s link show eth0
    ctl stats v$space | grep -E 'network_(packets|events)'
  done
}

# exchange [OPTIONS...]: runs the program.
exchange() {
  tcp_server a nobody "$T/exchange" --device va --port $PORT "${BOTH[@]}"
  local status=0
  on b nobody "$T/exchange" --device vb --port $PORT "${BOTH[@]}" --seed "$seed" "$@" 10.0.0.1 >"$T/client.log" 2>&1 ||
    status=$?
  reap server 20
  cat "$T/client.log"
  [[ $status -eq 0 && $REAPED -eq 0 ]] || fail "seed $seed: the server says: $(<"$T/server.log")"
  no_sanitizer "exchange" "$T/server.log" "$T/client.log"
}
BOTH=(--lost-after 300)  # options of both sides

# A datagram that arrives twice is two datagrams: those are for the next wire.
begin_wire --loss 1 --reorder 5 --duplicate 2 --corrupt 0.5 --delay 2
LIMIT=$((seconds * 30 + 100)) exchange --seconds "$seconds" --tests rc,uc
end_wire

if [[ $seconds -eq 0 ]]; then
  say "over IPv6, where only the ICRC finds what is corrupted"
  begin_wire --loss 2 --corrupt 2 --right-checksum --jitter 1
  BOTH+=(--gid-index "$(gid_index a va fd00::1)")
  [[ ${BOTH[-1]} -eq $(gid_index b vb fd00::2) ]] || fail "the tables differ"
  exchange --tests rc.read,rc.both,rc.in_flight,ud
  BOTH=("${BOTH[@]:0:2}")
  end_wire

  say "a long way"
  begin_wire --delay 20
  exchange --tests rc.write,rc.read
  end_wire

  say "a narrow way, whose router marks packets that wait"
  begin_wire --rate 20000000 --queue 2000 --mark 20
  exchange --tests rc.in_flight,rc.srq
  [[ $(stat_of vb network_events_np_cnp_sent) -gt 0 || $(stat_of va network_events_np_cnp_sent) -gt 0 ]] || fail "nobody tells of congestion"
  end_wire
fi
