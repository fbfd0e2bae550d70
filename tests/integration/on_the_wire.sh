#!/bin/bash
# on_the_wire.sh: the members of a fabric that is on the wire talk through their interfaces, where netfilter and tcpdump see them,
# also on one host; within a network namespace, by memory. What an operator changes holds for the next connections.
#
#        netns a                        netns b
#   +--------------------+         +--------------------+
#   | va -- eth0 10.0.0.1|---------|10.0.0.2 eth0 -- vb |   all of one tenant, in fabric red
#   | vc -- eth1 10.0.1.1|         |                    |
#   +--------------------+         +--------------------+
. "$(dirname "$0")/lib.sh"
setup
need_worker_processes
WORKERS_END=1
start_daemon
netns_add a b
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
loose a eth1
ip_in a address add 10.0.1.1/24 dev eth1
vdev_create va a eth0 --tenant red --fabric red
vdev_create vb b eth0 --tenant red --fabric red
vdev_create vc a eth1 --tenant red --fabric red
INDEX_A=$(gid_index a va 10.0.0.1)
INDEX_B=$(gid_index b vb 10.0.0.2)

sent() { stat_of "$1" network_packets_sent; }
# silent|heard PROGRAM...: the pair sends no packet, or each end sends some.
silent() {
  local before=$(($(sent va) + $(sent vb)))
  pair nobody "$@"
  [[ $(($(sent va) + $(sent vb))) -eq $before ]] || fail "$*: $(($(sent va) + $(sent vb) - before)) packets"
}
heard() {
  local of_a of_b
  of_a=$(sent va) of_b=$(sent vb)
  pair nobody "$@"
  [[ $(sent va) -gt $of_a && $(sent vb) -gt $of_b ]] || fail "$*: va sent $(sent va), vb $(sent vb)"
}

say "by memory, until an operator puts the fabric on the wire"
silent ibv_rc_pingpong -g GID -n 100
ctl fabric set red --reach wire
[[ $(ctl fabric list red) == *"red   wire          3 "* ]] || fail "the table is: $(ctl fabric list red)"
[[ $(ctl vdev show va | awk '$1 == "reach" { print $2 }') == wire ]] || fail "vdev show: $(ctl vdev show va)"
for kind in rc uc ud; do heard ibv_${kind}_pingpong -g GID -n 100; done

say "a takeover keeps it"
kill_daemon
start_daemon
heard ibv_rc_pingpong -g GID -n 100

say "rdma_cm, both ways"
requests() { stat_of daemon qp1_sent; }
before=$(requests)
listening_server a nobody rping -s -a 10.0.0.1 -C 20
on b nobody rping -c -a 10.0.0.1 -C 20 >"$T/client.log" 2>&1 || fail "rping: $(<"$T/client.log")"
reap server 20
[[ $(requests) -gt $before ]] || fail "the connection was made by memory"

say "a member of a group gets each datagram once"
spawn server b root mckey -m 239.1.2.3 -b 10.0.0.2 -C 20
joined() { [[ -n $(ip netns exec "$(ns b)" ip maddress show dev eth0 | grep 239.1.2.3) ]]; }
wait_until 20 joined || fail "vb does not join"
multicasts() { ctl exec vb -- cat /sys/class/infiniband/vb/ports/1/counters/multicast_rcv_packets; }
before=$(multicasts)
on a root mckey -m 239.1.2.3 -b 10.0.0.1 -s -C 20 >"$T/client.log" 2>&1 || fail "mckey: $(<"$T/client.log")"
reap server 20
[[ $REAPED -eq 0 ]] || fail "mckey: $(<"$T/server.log")"
got=$(($(multicasts) - before))
[[ $got -eq 20 ]] || fail "vb got $got datagrams of 20"

say "a policy that drops its packets separates them"
ip netns exec "$(ns b)" nft -f - <<'END'
table ip walls { chain input { type filter hook input priority 0; ip saddr 10.0.0.1 udp dport 4791 drop; }
}
END
tcp_server a nobody ibv_rc_pingpong -d va -g "$INDEX_A" -n 100
if on b nobody ibv_rc_pingpong -d vb -g "$INDEX_B" -n 100 10.0.0.1 >"$T/client.log" 2>&1; then
  fail "they talk: $(<"$T/client.log")"
fi
grep -q "transport retry counter exceeded" "$T/client.log" || fail "the client says: $(<"$T/client.log")"
reap server 10

say "within a network namespace memory leads to all"
before=$(($(sent va) + $(sent vc)))
tcp_server a nobody ibv_rc_pingpong -d va -g "$INDEX_A" -n 100
on a nobody ibv_rc_pingpong -d vc -g "$(gid_index a vc 10.0.1.1)" -n 100 10.0.0.1 >"$T/client.log" 2>&1 ||
  fail "va and vc: $(<"$T/client.log")"
reap server 10
[[ $(($(sent va) + $(sent vc))) -eq $before ]] || fail "va and vc send packets"

say "off the wire, memory leads to them again, whatever the policy"
ctl fabric set red --reach network
silent ibv_rc_pingpong -g GID -n 100
