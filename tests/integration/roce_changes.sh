#!/bin/bash
# roce_changes.sh LISTENER: an address, a group, a route or the reach of a fabric changes while programs use the network.
. "$(dirname "$0")/roce_pair.sh"
install -m 755 "$1" "$T/listener"
for fabric in left right; do ctl fabric set $fabric --reach network >/dev/null; done

has_address() { ctl gid list vb | grep -q 10.0.0.2; }
lacks_address() { ! has_address; }

say "an address goes and returns, while programs have datagrams and listeners"
spawn waiting b root ibv_ud_pingpong -p $((PORT + 1)) -g "$(index vb ::ffff:10.0.0.2)"
wait_until 20 listens waiting $((PORT + 1)) || fail "the server does not listen"
listening_program listening b root rping -s -a 10.0.0.2 -P
spawn endless b root ib_send_bw -c UD -D 300 -p $((PORT + 2)) -x "$(index vb ::ffff:10.0.0.2)"
wait_until 20 listens endless $((PORT + 2)) || fail "the server does not listen"
spawn endless_client a root ib_send_bw -c UD -D 300 -p $((PORT + 2)) -x "$(index va ::ffff:10.0.0.1)" 10.0.0.2
sends_datagrams() { [[ $(ctl qp list va) =~ UD\ +RTS ]]; }
wait_until 20 sends_datagrams || fail "the list is: $(ctl qp list)"
sleep 0.5
ip_in b address delete 10.0.0.2/24 dev eth0
wait_until 10 lacks_address || fail "the address is still a GID"
ip_in b address add 10.0.0.2/24 dev eth0
wait_until 10 has_address || fail "the address is no GID again"
on a root rping -c -a 10.0.0.2 -C 20 -V >"$T/client.log" 2>&1 || fail "nothing arrives any more: $(<"$T/client.log")"
pingpong 10.0.0.2 rc -c -g "$(index va ::ffff:10.0.0.1)"
kill_programs waiting listening endless endless_client

say "rdma_resolve_addr() asks the kernel for the route and the neighbour"
# no_way ADDRESS ERROR: what rdma_resolve_addr() of a comes to.
no_way() {
  on a root rping -c -a "$1" -C 1 >"$T/client.log" 2>&1 && fail "there is nobody at $1"
  grep -q "RDMA_CM_EVENT_ADDR_ERROR, error -$2\$" "$T/client.log" || fail "$1, not errno $2: $(<"$T/client.log")"
}
ip_in a route add unreachable 10.0.9.0/24
no_way 10.0.9.1 113    # EHOSTUNREACH
no_way 192.168.77.1 101  # ENETUNREACH
no_way fd77::1 101
no_way 10.0.0.77 110     # ETIMEDOUT, for rping waits for two seconds
for version in ipv4 ipv6; do $(enter a) sysctl -qw "net.$version.neigh.eth0.retrans_time_ms=100"; done
no_way 10.0.0.78 113
no_way fd00::78 113

say "a route's MTU is that of the path: no longer packet leaves"
rping_passes() { cm a b "rping -s -a 10.0.0.1 -C 5 -V -S 3000" "rping -c -a 10.0.0.1 -C 5 -V -S 3000"; }
for space in a b; do
  ip_in $space link set eth0 gso_max_segs 1
  $(enter $space) nft 'table ip narrow { chain in { type filter hook prerouting priority 0; udp dport 4791 udp length > 680 drop; }; }'
done
ip_in a route replace 10.0.0.2/32 dev eth0 src 10.0.0.1 mtu 700
ip_in b route replace 10.0.0.1/32 dev eth0 src 10.0.0.2 mtu 700
rping_passes
ip_in a route delete 10.0.0.2/32
ip_in b route delete 10.0.0.1/32
for space in a b; do
  $(enter $space) nft delete table ip narrow
  ip_in $space link set eth0 gso_max_segs 64
done

say "what ICMP says of the path is ignored, because any host can forge it"
both_have_ports() { has_roce_ports a && has_roce_ports b; }
for space in a b; do spawn "keeps-$space" $space root rping -s -p 7999; done
wait_until 10 both_have_ports || fail "programs with rdma_cm do not open the port"
for to in a b; do $(enter "$([[ $to == a ]] && echo b || echo a)") /usr/bin/python3 - $to <<'END'
import socket, struct, sys

def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xffff) + (total >> 16)
    return ~(total + (total >> 16)) & 0xffff

target, other = ("10.0.0.1", "10.0.0.2") if sys.argv[1] == "a" else ("10.0.0.2", "10.0.0.1")
quoted = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 1068, 0, 0x4000, 64, 17, 0, socket.inet_aton(target),
                     socket.inet_aton(other)) + struct.pack("!HHHH", 4791, 4791, 1048, 0)
message = struct.pack("!BBHHH", 3, 4, 0, 0, 552) + quoted
message = message[:2] + struct.pack("!H", checksum(message)) + message[4:]
socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).sendto(message, (target, 0))
END
done
[[ $(ip_in a route get 10.0.0.2) == *"mtu 552"* ]] || fail "the kernel ignores it anyway: $(ip_in a route get 10.0.0.2)"
rping_passes
meet 10.0.0.2 ib_write_bw -s 1048576 -n 20 -p $PORT -x "$(index va ::ffff:10.0.0.1)"
for space in a b; do
  ip_in $space route flush cache
  kill_programs "keeps-$space"
done

say "mckey: multicast groups, both ways"
# in_group NAMESPACE GROUP: whether the kernel there is a member of it. GROUP: as in its table.
in_group() { $(enter "$1") cat /proc/net/igmp /proc/net/igmp6 | grep -qi "$2"; }
not_in_group() { ! in_group "$@"; }
# many ROUTE GROUP OF-KERNEL FROM FROM-ADDRESS TO TO-ADDRESS
many() {
  spawn server "$5" root mckey -m "$1" -b "$6"
  wait_until 10 in_group "$5" "$2" || fail "$5 is not in the group $1: $(<"$T/server.log")"
  on "$3" root mckey -m "$1" -b "$4" -s >"$T/client.log" 2>&1 || fail "mckey -s: $(<"$T/client.log")"
  reap server 20
  [[ $REAPED -eq 0 ]] || fail "mckey: $(<"$T/server.log")"
  grep -q "return status 0" "$T/server.log" || fail "mckey: $(<"$T/server.log")"
  wait_until 10 not_in_group "$5" "$2" || fail "$5 stays in the group $1"
}
many 239.1.2.3 030201EF a 10.0.0.1 b 10.0.0.2
many 239.1.2.3 030201EF b 10.0.0.2 a 10.0.0.1
many ff0e::77 ff0e0000000000000000000000000077 a fd00::1 b fd00::2
many ff0e::77 ff0e0000000000000000000000000077 b fd00::2 a fd00::1

say "a program that is in another group gets nothing; when it is killed, its namespace leaves the group"
packets() { ctl stats vb | awk '$2 == "network_packets_received" { print $3 }'; }
spawn server b root mckey -m 239.9.9.9 -b 10.0.0.2
wait_until 20 in_group b 090909EF || fail "b is not in the group: $(<"$T/server.log")"
before=$(packets)
on a root mckey -m 239.1.2.3 -b 10.0.0.1 -s >"$T/client.log" 2>&1 || fail "mckey -s: $(<"$T/client.log")"
sleep 0.5
ended "${PID[server]}" && fail "it has what was for another group: $(<"$T/server.log")"
[[ $(packets) -eq $before ]] || fail "packets of a group that nobody has joined reach the worker"
kill -9 "${PID[server]}"
reap server 5
wait_until 10 not_in_group b 090909EF || fail "a killed program stays in its group"

say "a congested router marks packets: the receiver tells the sender, and the sender sends more slowly"
counted() { ctl stats "$1" | awk -v event="$2" '$2 ~ event "$" { print $3 }'; }
$(enter b) nft -f - <<'EOF'
table ip router {
  chain congested {
    type filter hook prerouting priority 0
    udp dport 4791 ip ecn ect0 numgen random mod 50 == 0 ip ecn set ce
  }
}
EOF
meet 10.0.0.2 ib_write_bw -s 1048576 -n 100 -p $PORT -x "$(index va ::ffff:10.0.0.1)"
pingpong 10.0.0.2 rc -c -g "$(index va ::ffff:10.0.0.1)" -m 1024 -s 100000
marked=$(counted vb np_ecn_marked_roce_packets) told=$(counted vb np_cnp_sent) heard=$(counted va rp_cnp_handled)
say "   $marked packets were marked, $told notifications sent, $heard heard"
[[ $marked -gt 100 && $told -gt 10 && $told -le $marked && $heard -eq $told ]] || fail "marks go unheard"
$(enter b) nft delete table ip router

say "a program stays in its group when vrdmad is killed and started again"
spawn server b root mckey -m 239.9.9.9 -b 10.0.0.2
wait_until 10 in_group b 090909EF || fail "b is not in the group: $(<"$T/server.log")"
kill_daemon
wait_until 10 not_in_group b 090909EF || fail "nobody has the socket of the group, and b is in it"
start_daemon
wait_until 20 in_group b 090909EF || fail "the program is not in its group any more"
on a root mckey -m 239.9.9.9 -b 10.0.0.1 -s >"$T/client.log" 2>&1 || fail "mckey -s: $(<"$T/client.log")"
reap server 20
[[ $REAPED -eq 0 ]] || fail "mckey: $(<"$T/server.log")"

say "an address that a program wants during duplicate address detection is on the network afterwards"
# tentative_address ADDRESS: b has it now, and cannot use it for some seconds.
tentative_address() {
  ip_in b address add "$1/64" dev eth0
  wait_until 5 knows "$1" || fail "$1 is no GID"
}
knows() { [[ $(ctl vdev show vb -o json) == *"\"$1\""* ]]; }
is_tentative() { [[ -n $(ip_in b address show dev eth0 to "$1" tentative 2>/dev/null) ]]; }
no_more_tentative() { ! is_tentative "$@"; }
# hears ADDRESS: the worker of b reads what comes there.
hears() {
  local before
  before=$(garbage)
  on a root python3 -c '
import socket, sys
socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b"?" * 64, (sys.argv[1], 4791))' "$1" || return 1
  sleep 0.1
  [[ $(garbage) -gt $before ]]
}
garbage() { ctl stats vb | awk '$2 ~ /rx_(malformed|icrc_encapsulated)$/ { sum += $3 } END { print sum + 0 }'; }
$(enter b) sysctl -qw net.ipv6.conf.eth0.accept_dad=1 net.ipv6.conf.eth0.dad_transmits=8
tentative_address fd00::22
spawn listener b nobody "$T/listener" vb
wait_until 10 grep -q 'queue pair' "$T/listener.log" || fail "no datagrams are received"
is_tentative fd00::22 || fail "the listener was not there during the detection"
wait_until 30 no_more_tentative fd00::22 || fail "the detection does not end"
wait_until 5 hears fd00::22 || fail "the listener gets nothing at fd00::22: $(tail -n 3 "$T/vrdmad.log")"
say "   and when everything is restarted, although the program does nothing"
kill_daemon
start_daemon
for address in fd00::2 fd00::22; do
  wait_until 10 hears $address || fail "after a restart the listener gets nothing at $address"
done
say "   also one that comes later"
tentative_address fd00::24
wait_until 30 hears fd00::24 || fail "the listener gets nothing at fd00::24"
kill "${PID[listener]}"
reap listener 5
say "   also for programs of rdma_cm"
tentative_address fd00::23
listening_server b root rping -s -a :: -C 1
is_tentative fd00::23 || fail "rping was not there during the detection"
wait_until 30 no_more_tentative fd00::23 || fail "the detection does not end"
on a root rping -c -a fd00::23 -C 1 >"$T/client.log" 2>&1 || fail "rping at fd00::23: $(<"$T/client.log")"
reap server 20
$(enter b) sysctl -qw net.ipv6.conf.eth0.accept_dad=0

say "without IPv6 the GID of the MAC is no address, and the others are not affected"
for space in a b; do $(enter $space) sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1; done
gid=$(index va ::ffff:10.0.0.1)
[[ $gid == "$(index vb ::ffff:10.0.0.2)" && $gid -ne 0 ]] || fail "the tables differ"
pingpong 10.0.0.2 ud -g "$gid" -s 900
pingpong 10.0.0.2 rc -c -g "$gid"

say "an operator who ends a fabric's reach ends what reaches other hosts, and may let it begin again"
tcp_server b root ib_write_bw -D 60 -p $PORT -x "$gid"
spawn client a root ib_write_bw -D 60 -p $PORT -x "$gid" 10.0.0.2
spawn datagrams a nobody "$T/listener" va
wait_until 10 grep -q 'queue pair' "$T/datagrams.log" || fail "no datagrams are received"
wait_until 20 in_use || fail "the list is: $(ctl qp list)"
ctl fabric set left --reach host
reap client 10
[[ $REAPED -ne 0 && $REAPED -lt 128 ]] || fail "the client ended with status $REAPED: $(<"$T/client.log")"
wait_until 5 free_of_roce_ports a || fail "a may not reach the network, and UDP port 4791 is open: $($(enter a) ss -uln)"
reap server 20  # it hears of its client's end
ctl fabric set left --reach network
wait_until 5 has_roce_ports a || fail "a may reach the network again, and its datagrams do not come"
kill_programs datagrams
pingpong 10.0.0.2 rc -c -g "$gid"
pingpong 10.0.0.2 ud -g "$gid" -s 900

say "sockets end with the programs that need them"
wait_until 15 free_of_roce_ports a b || fail "UDP port 4791 is still open: $($(enter a) ss -uln) $($(enter b) ss -uln)"

say "a program that begins as soon as another has given back the port is not refused for the one before it"
# shellcheck disable=SC2046
$(enter a) /usr/bin/python3 -c '
import socket, time
taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
taken.bind(("0.0.0.0", 4791))
time.sleep(300)' &
PID[taker]=$!
wait_until 10 has_roce_ports a || fail "the port cannot be taken"
listening_program refused a root rping -s -a 10.0.0.1
kill_programs refused taker
pingpong 10.0.0.2 rc -c -g "$gid"
