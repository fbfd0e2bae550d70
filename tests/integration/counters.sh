#!/bin/bash
# counters.sh direct|mediated: what the files in ports/1/counters and hw_counters say of traffic, and what
# `rdma` says.
#
#     netns a                 netns b
#   +-----------+           +-----------+
#   | server    |   veth    |    client |
#   | va -- eth0|===========|eth0 -- vb |
#   | 10.0.0.1  |           | 10.0.0.2  |
#   +-----------+           +-----------+
. "$(dirname "$0")/lib.sh"
mode=$1
setup
start_daemon
two_vdevices "$mode"

# The environment of each, as `vrdmactl exec` gives it; it lasts.
for vdevice in va vb; do
  VRDMA_RUN_DIR=$R "$BUILD/bin/vrdmactl" exec $vdevice -- sleep 1000 &
  PID[$vdevice]=$!
done
inside() { nsenter --target "${PID[$1]}" --mount --net "${@:2}"; }
shown() { inside "$1" test -d "/sys/class/infiniband/$1/ports/1/counters"; }
for vdevice in va vb; do wait_until 5 shown $vdevice || fail "$vdevice has no counters"; done
counter() { inside "$1" cat "/sys/class/infiniband/$1/ports/1/$2"; } # VDEVICE FILE

# run PROGRAM ARGUMENT...: a server on va and a client on vb.
run() {
  local program=$1
  shift
  spawn_inside server va "$program" -d va "$@"
  wait_until 20 listens server || fail "$program: the server does not listen"
  spawn_inside client vb "$program" -d vb "$@" 10.0.0.1
  reap client 60
  [[ $REAPED -eq 0 ]] || fail "$program $*: the client ends with status $REAPED"
  reap server 10
  [[ $REAPED -eq 0 ]] || fail "$program $*: the server ends with status $REAPED"
}
spawn_inside() { # NAME VDEVICE COMMAND...
  local name=$1 vdevice=$2
  shift 2
  nsenter --target "${PID[$vdevice]}" --mount --net env -i "${ENVIRONMENT[@]}" "$@" \
    >"$T/$name.log" 2>&1 </dev/null &
  PID[$name]=$!
}

# grew VDEVICE FILE BY: since `remember`, as soon as the files may be older no more.
declare -A BEFORE=()
FILES=(counters/port_{xmit,rcv}_{data,packets} counters/{uni,multi}cast_{xmit,rcv}_packets
  hw_counters/{sent,rcvd}_pkts)
remember() {
  local vdevice file
  sleep 1 # what came last is in them
  for vdevice in va vb; do
    for file in "${FILES[@]}"; do BEFORE[$vdevice/$file]=$(counter $vdevice "$file"); done
  done
}
has_grown() { [[ $(counter "$1" "$2") -eq $((BEFORE[$1/$2] + $3)) ]]; }
grew() {
  wait_until 3 has_grown "$@" ||
    fail "$2 of $1 is $(counter "$1" "$2"), was ${BEFORE[$1/$2]}, and had to grow by $3"
}

say "before traffic"
for vdevice in va vb; do
  for file in "${FILES[@]}"; do
    [[ $(counter $vdevice "$file") == 0 ]] || fail "$file of $vdevice is not 0"
  done
done

say "RDMA WRITE: out of the client, into the server"
remember
run ib_write_bw -F -n 500 -s 65536 -Q 1
for file in counters/port_{xmit,rcv}_data; do
  vdevice=vb; [[ $file == *xmit* ]] || vdevice=va
  grew $vdevice "$file" $((500 * 65536 / 4))
done
grew vb counters/port_xmit_packets 500
grew va counters/port_rcv_packets 500
grew vb counters/unicast_xmit_packets 500
grew va hw_counters/rcvd_pkts 500
grew va counters/port_xmit_data 0
grew vb counters/port_rcv_data 0

say "RDMA READ: a request there, the bytes back"
remember
run ib_read_bw -F -n 300 -s 65536
grew vb counters/port_rcv_data $((300 * 65536 / 4))
grew va counters/port_xmit_data $((300 * 65536 / 4))
grew vb counters/port_xmit_packets 300
grew va counters/port_xmit_packets 300
grew vb counters/port_xmit_data 0

say "datagrams"
remember
run ib_send_bw -c UD -F -n 400 -s 1024
grew vb counters/port_xmit_data $((400 * 1024 / 4))
grew vb counters/port_xmit_packets 400
grew vb counters/multicast_xmit_packets 0
sleep 1
received=$(counter va counters/port_rcv_packets) # without a receive, a datagram is dropped
[[ $received -gt ${BEFORE[va/counters/port_rcv_packets]} ]] || fail "va has received no datagram"

say "a link that goes down"
ip_in b link set eth0 down
is_down() { [[ $(counter vb counters/link_downed) == 1 && $(counter vb hw_counters/link_downed) == 1 ]]; }
wait_until 3 is_down || fail "link_downed is $(counter vb counters/link_downed)"
ip_in b link set eth0 up
# Both ends of the veth pair were without a carrier.
are_up() { [[ $(counter va state) == "4: ACTIVE" && $(counter vb state) == "4: ACTIVE" ]]; }
wait_until 5 are_up || fail "the ports do not come back"

say "perftest reports what its run added, of files that it keeps open"
names=counters/port_xmit_data,counters/port_rcv_data,hw_counters/sent_pkts
reported() { sed -nE "s:^\s*$1=([0-9]+)$:\1:p" "$T/client.log"; }
# The files are written one after the other, which may happen while perftest reads them.
for _ in 1 2 3; do
  run ib_write_bw -F -D 3 -s 65536 -W $names
  sent=$(reported counters/port_xmit_data)
  [[ -n $sent ]] || fail "perftest reports no counters: $(<"$T/client.log")"
  [[ $((sent / (65536 / 4))) -ne $(reported hw_counters/sent_pkts) ]] || break
done
say "port_xmit_data $sent, port_rcv_data $(reported counters/port_rcv_data), sent_pkts $(reported hw_counters/sent_pkts)"
[[ $sent -gt 0 && $sent -le $(counter vb counters/port_xmit_data) ]] || fail "it reports $sent words"
[[ $(reported counters/port_rcv_data) == 0 ]] || fail "it reports words received"
[[ $((sent / (65536 / 4))) -eq $(reported hw_counters/sent_pkts) ]] || fail "packets and words differ"

say "rdma tells of the vdevice, and of no other"
rdma() { ctl exec va -- rdma "$@"; }
[[ $(rdma dev) == "0: va: node_type ca fw vrdma-"* ]] || fail "rdma dev: $(rdma dev)"
[[ $(rdma dev | wc -l) -eq 1 ]] || fail "rdma dev: $(rdma dev)"
[[ $(rdma link) == "link va/1 state ACTIVE physical_state LINK_UP netdev eth0 " ]] || fail "rdma link: $(rdma link)"
rdma -j link | python3 -c '
import json, sys
row, = json.load(sys.stdin)
assert (row["ifname"], row["port"], row["netdev"]) == ("va", 1, "eth0"), row'
rdma -jp statistic | python3 -c '
import json, sys
row, = json.load(sys.stdin)
assert row["ifname"] == "va" and row["rcvd_pkts"] >= 500, row'
spawn_inside holder va ibv_asyncwatch -d va
has_context() { [[ $(rdma resource) == *" ctx 1 "* ]]; }
wait_until 5 has_context || fail "rdma resource: $(rdma resource)"
kill "${PID[holder]}"
reap holder 5
no_context() { [[ $(rdma resource) == *" ctx 0 "* ]]; }
wait_until 5 no_context || fail "rdma resource, afterwards: $(rdma resource)"
if rdma resource show qp >"$T/refused" 2>&1; then fail "rdma lists queue pairs"; fi
grep -q 'rdma resource' "$T/refused" || fail "it does not say why not: $(<"$T/refused")"

say "the rest is another rdma's"
mkdir "$T/other"
printf '#!/bin/sh\necho "other: $*"\nexit 7\n' >"$T/other/rdma"
chmod 755 "$T/other/rdma"
status=0
answer=$(PATH=$T/other:$PATH ctl exec va -- rdma system show) || status=$?
[[ $answer == "other: system show" && $status -eq 7 ]] || fail "it says '$answer', $status"
if ctl exec va -- env PATH="$BUILD/lib/vrdma/bin" rdma system >"$T/refused" 2>&1; then fail "there is no other, and it succeeds"; fi
grep -q 'no other rdma' "$T/refused" || fail "without another: $(<"$T/refused")"
kill "${PID[va]}" "${PID[vb]}"
for vdevice in va vb; do reap $vdevice 5; done
