#!/bin/bash
# wire.sh FLOW: strangers on the wire speak in the name of a peer, and a user in a vdevice's namespace floods by a UDP
# socket. FLOW checks all messages, WRITEs, READs and atomics that two connections exchange meanwhile.
#
#     netns a                       netns w                      netns b
#   +----------------+        +------------------+        +----------------+
#   | va: one, two   |========| pa    br0    pb  |========| vb: one, two   |    va and vb are in two fabrics
#   | eth0 10.0.0.1  |        |     10.0.0.9     |        | eth0 10.0.0.2  |    that reach the network
#   +----------------+        +------------------+        +----------------+
#                               forger.py: sees all packets, and sends any
#
# A stranger that knows the numbers of queue pairs, but no sequence number, ends no connection, and nothing is lost,
# repeated or changed. One that sees the packets can end a connection: that one, and no other of the same vdevices.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../flows.sh"
setup
need_worker_processes
here=$(dirname "$(realpath "$0")")
seconds=${SECONDS_EACH:-2}
cp "$1" "$T/lib/flow"
cp "$here/forger.py" "$T/"
start_daemon
netns_add a b w
join a eth0 10.0.0.1/24 w pa 192.0.2.1/32
join b eth0 10.0.0.2/24 w pb 192.0.2.2/32
ip_in w link add br0 mtu 4200 type bridge 2>/dev/null || skip "the kernel has no bridge"
for port in pa pb; do ip_in w link set $port master br0; done
ip_in w address add 10.0.0.9/24 dev br0
ip_in w link set br0 up
vdev_create va a eth0 --tenant red --fabric left
vdev_create vb b eth0 --tenant blue --fabric right
for fabric in left right; do ctl fabric set $fabric --reach network >/dev/null; done
ENVIRONMENT+=(FLOW_TIMEOUT="${FLOW_TIMEOUT:-17}")
begin_flow one va vb 18530
begin_flow two va vb 18531
flows_go_on "at first"

numbers_of() { # NAME: the queue pairs of the programs NAME-a and NAME-b
  ctl -o json qp list | python3 -c '
import json, sys
print(*[row["qpn"] for row in json.load(sys.stdin) if str(row["pid"]) in sys.argv[1:]], sep=",")' \
    "${PID[$1-a]}" "${PID[$1-b]}"
}
one=$(numbers_of one) two=$(numbers_of two)
[[ $one == *,* && $two == *,* ]] || fail "no queue pairs: $(ctl qp list)"
mapfile -t before < <(workers)

# forge HOW NUMBERS WORD...: forger.py for some seconds, as root in w. What it has sent is in $T/forger.log.
forge() {
  say "$1"
  spawn forger w root python3 "$T/forger.py" "$1" "$seconds" "${@:2}"
  forged "$1"
}
forged() { # HOW
  wait_until 10 grep -qs begins "$T/forger.log" || fail "$1: it does not begin: $(<"$T/forger.log")"
  flows_go_on "$1"
  reap forger $((seconds * 3 + 20))
  [[ $REAPED -eq 0 ]] || fail "$1: the forger fails: $(<"$T/forger.log")"
  say "$(tail -n 1 "$T/forger.log")"
  flows_go_on "after $1"
  [[ $(workers) == "$(printf '%s\n' "${before[@]}")" ]] || fail "$1: a worker has ended: $(tail -n 5 "$T/vrdmad.log")"
  ctl vdev list >/dev/null || fail "$1: an operator is not answered"
}
sent() { tail -n 1 "$T/forger.log" | python3 -c '
import json, sys
sent = json.load(sys.stdin)
print(sum(sent.get(kind, 0) for kind in sys.argv[1:]))' "$@"; }
events() { # EVENT...: of both vdevices
  local each sum=0
  for each in va vb; do sum=$((sum + $(stat_of $each "${@/#/network_events_}"))); done
  echo $sum
}

forge far "$one,$two" pa pb
[[ $(sent rnr) -gt 100 && $(sent nak_access) -gt 100 && $(sent fragment) -gt 10 ]] || fail "few are sent"
for event in rp_cnp_handled duplicate_request out_of_sequence; do
  [[ $(events $event) -gt 0 ]] || fail "the packets do not reach the queue pairs: $event is 0"
done
[[ $(events req_remote_access_errors resp_remote_access_errors) -eq 0 ]] ||
  fail "a packet of a stranger counts: $(ctl stats va; ctl stats vb)"

say "a user in the namespace of the peer, by a UDP socket of its address"
spawn forger b nobody python3 "$T/forger.py" socket "$seconds" "$one,$two" 10.0.0.1 10.0.0.2
forged "a socket in b"
[[ $(sent segments) -gt 10 && $(sent largest) -gt 10 && $(sent empty) -gt 10 ]] || fail "few are sent"
[[ $(events rx_bad_pkey) -gt 0 && $(events rx_bad_service) -gt 0 && $(events rx_malformed) -gt 0 ]] ||
  fail "they do not reach the queue pairs: $(ctl stats va)"

say "another host, by a UDP socket"
spawn forger w nobody python3 "$T/forger.py" socket "$seconds" "$one,$two" 10.0.0.1
forged "a socket of another host"
[[ $(events rx_wrong_source) -gt 0 ]] || fail "they do not reach the worker"

say "a host on the way, which sees the sequence numbers, ends the connection that it attacks alone"
FLOWS=(two-a two-b)
for again in 1 2 3; do
  forge near "$one" pa pb
  for end in a b; do
    kill -9 "${PID[one-$end]}" 2>/dev/null || true
    reap one-$end 10
  done
  FLOWS=(two-a two-b)
  [[ $again -lt 3 ]] || break
  begin_flow one va vb $((18531 + again))
  one=$(numbers_of one)
  FLOWS=(two-a two-b)
done
[[ $(sent nak_access rnr ack read write) -gt 10 ]] || fail "few are sent: $(<"$T/forger.log")"
end_flows "at the end"
ended "$DAEMON" && fail "vrdmad has ended"
for each in "a va" "b vb"; do
  read -r space device <<<"$each"
  LIMIT=20 on "$space" nobody ibv_devinfo -d "$device" >/dev/null || fail "$device cannot be opened any more"
done
