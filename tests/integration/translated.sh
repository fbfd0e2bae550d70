#!/bin/bash
# Something translates addresses between two hosts: a connection request is refused at once, and the log says why.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/wire.sh"
setup
start_daemon
two_hosts
logged() { grep -qF -- "$*" "$T/vrdmad.log"; }
translate() { $(enter a) nft "table ip nat { chain c { type nat hook $1; $2; }; }"; }
direct() { $(enter a) nft delete table ip nat; }

# refused ADDRESS: rping from a to it ends with REJECTED, status 12 (Invalid GID).
refused() {
  listening_server b root rping -s -a 10.0.0.2 -C 1
  spawn client a root rping -c -a "$1" -C 1
  reap client 20
  grep -q "RDMA_CM_EVENT_REJECTED, error 12" "$T/client.log" || fail "rping to $1 says: $(<"$T/client.log")"
  kill -9 "${PID[server]}"
  reap server 5
}

say "a destination that is sent on, as a Kubernetes service does"
$(enter a) ip route add 10.96.0.0/24 via 10.0.0.2
translate "output priority -100" "ip daddr 10.96.0.1 dnat to 10.0.0.2"
refused 10.96.0.1
logged "from ::ffff:10.0.0.1 to ::ffff:10.96.0.1 came from ::ffff:10.0.0.1 to ::ffff:10.0.0.2" || fail "the log does not say so"
direct

say "a source that is replaced (masquerading)"
$(enter a) ip address add 10.0.0.77/32 dev lo
translate "postrouting priority 100" "udp dport 4791 snat to 10.0.0.77"
refused 10.0.0.2
logged "from ::ffff:10.0.0.1 to ::ffff:10.0.0.2 came from ::ffff:10.0.0.77 to ::ffff:10.0.0.2" || fail "the log does not say so"
[[ $(stat_of daemon qp1_translated) -eq 2 ]] || fail "requests are not counted: $(ctl stats daemon)"

say "queue pairs that programs connect themselves"
tcp_server b root ibv_rc_pingpong -g "$(gid_index b vb 10.0.0.2)" -p $PORT -n 10
spawn client a root ibv_rc_pingpong -g "$(gid_index a va 10.0.0.1)" -p $PORT -n 10 10.0.0.2
reap client 30
grep -q "transport retry counter exceeded" "$T/client.log" || fail "the client says: $(<"$T/client.log")"
[[ $(stat_of vb network_events_rx_wrong_source) -gt 0 ]] || fail "nothing is counted: $(ctl stats vb)"
logged "has the peer ::ffff:10.0.0.1, and packets for it come from ::ffff:10.0.0.77: is there address translation" ||
  fail "the log does not say so"
