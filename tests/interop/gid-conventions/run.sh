#!/bin/bash
# run.sh: the GID indices that NCCL, brpc, UCX, Mooncake and perftest choose, in both layouts of a table.
#
#     netns a                          netns b
#   +-------------------+            +-------------------+
#   | va --------- eth0 |== veth ====| eth0 --------- vb |
#   | dense    10.0.0.1 |            | 10.0.0.2     mlx5 |
#   +-------------------+            +-------------------+
. "$(dirname "$0")/../stack/lib.sh"
setup
start_daemon
netns_add a b
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
vdev_create va a eth0 --tenant red
vdev_create vb b eth0 --tenant red --gid-layout mlx5
gcc -O1 -Wall -Wextra -Werror -o "$T/choose" "$(dirname "$0")/choose.c" -libverbs

# said DEVICE: what choose says, without line ends; and what the daemon says of the same table.
said() { exec_in "$1" "$T/choose" "$1" 2>&1 | paste -sd ' '; }
listed() { ctl gid list "$1" | awk 'NR > 1 { print $2 }' | xargs; }
expect() { # DEVICE WHAT CHOICES INDICES
  local wanted="$3 table $4 sysfs $4"
  is_so() { [[ $(said "$1") == "$2" && $(listed "$1") == "$3" ]]; }
  wait_until 5 is_so "$1" "$wanted" "$4" ||
    fail "$1, $2: '$(said "$1")' and listed $(listed "$1"), not '$wanted'"
  say "$1, $2: $3"
}
index_is() { [[ $(gid_index "$1" "$2" "$3" 2>/dev/null | xargs) == "$4" ]]; }

ones="nccl 1 brpc 1 ucx 1 mooncake 1 perftest 1"
expect va "one address" "$ones" "0 1"
expect vb "one address" "nccl 1 brpc 3 ucx 1 mooncake 1 perftest 1" "0 1 3"
index_is b vb 10.0.0.2 "1 3" || fail "index 3 does not repeat the GID of index 1"

say "further addresses: index 1 stays"
ip_in a address add fd00::1/64 dev eth0 nodad
ip_in a address add 10.0.0.7/24 dev eth0
ip_in b address add fd00::2/64 dev eth0 nodad
expect va "three addresses" "nccl 1 brpc 3 ucx 1 mooncake 1 perftest 1" "0 1 2 3"
expect vb "two addresses" "nccl 1 brpc 4 ucx 1 mooncake 1 perftest 1" "0 1 3 4"
index_is a va 10.0.0.1 1 || fail "index 1 is another address: $(ctl gid list va)"

say "the first address goes and returns"
ip_in a address delete 10.0.0.1/24 dev eth0
gone() { index_is a va 10.0.0.1 ""; }
wait_until 5 gone || fail "10.0.0.1 stays"
ip_in a address show dev eth0 | grep -q 'inet ' || ip_in a address add 10.0.0.7/24 dev eth0
seven() { index_is a va 10.0.0.7 1; }
wait_until 5 seven || fail "10.0.0.7 is not at index 1: $(ctl gid list va)"
ip_in a address add 10.0.0.1/24 dev eth0
back() { index_is a va 10.0.0.1 3; }
wait_until 5 back || fail "10.0.0.1 is not at the end: $(ctl gid list va)"
seven || fail "an address that returns takes index 1"
ip_in b address delete 10.0.0.2/24 dev eth0
no_ipv4() { [[ $(listed vb) == "0 4" ]]; }
wait_until 5 no_ipv4 || fail "without IPv4 the others moved: $(ctl gid list vb)"
ip_in b address add 10.0.0.2/24 dev eth0
expect vb "it is back" "nccl 1 brpc 4 ucx 1 mooncake 1 perftest 1" "0 1 3 4"

say "index 3 carries traffic"
tcp_server b root ibv_rc_pingpong -d vb -g 3 -n 100
on a root ibv_rc_pingpong -d va -g 1 -n 100 10.0.0.2 >"$T/client.log" 2>&1 || fail "pingpong to index 3"
reap server 10
[[ $REAPED -eq 0 ]] || fail "the server at index 3 ends with status $REAPED"

say "the layout outlives the daemon, and is shown"
[[ $(ctl vdev show vb) == *"gid layout     mlx5"* ]] || fail "vdev show does not name the layout"
[[ $(ctl -o json vdev show va) == *'"gid_layout": "dense"'* ]] || fail "the JSON does not name it"
kill_daemon
start_daemon
[[ $(listed vb) == "0 1 3 4" ]] || fail "after the restart: $(ctl gid list vb)"
if said=$(ctl vdev create vx --netns "$(ns a)" --netdev eth0 --gid-layout mlx4 2>&1); then
  fail "a layout that there is not was taken: $said"
fi
