#!/bin/bash
# neighbour.sh PROGRAM: programs that fill in Ethernet headers themselves get the address of a peer from the kernel's
# table of neighbours, which is asked for one entry and filled when it lacks it.
#
#     netns a                          netns b
#   +---------------+     veth       +---------------+
#   | va -- eth0    | ============== | eth0          |   10.0.0.2, fd00::2
#   +---------------+                +---------------+
. "$(dirname "$0")/lib.sh"
setup
install -m 755 "$1" "$T/neighbour"
start_daemon
netns_add a b
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
ip_in a address add fd00::1/64 dev eth0 nodad
ip_in b address add fd00::2/64 dev eth0 nodad
vdev_create va a eth0
mac_of() { ip_in "$1" -o link show eth0 | sed 's/.*link.ether //; s/ .*//'; }
resolve() { on a nobody "$T/neighbour" va "$@" >"$T/out" 2>&1 || true; }
resolves() { # GID_INDEX ADDRESS MAC [COUNT]
  resolve "$1" "$2" "${4:-1}"
  say "$2: $(<"$T/out")"
  [[ $(<"$T/out") == "$3 "* ]] || fail "$2 is not $3, but $(<"$T/out")"
}
peer=$(mac_of b) own=$(mac_of a)
ipv6=$(gid_index a va fd00::1)
ip_in a neighbour flush dev eth0
resolves 1 10.0.0.2 "$peer"
resolves "$ipv6" fd00::2 "$peer"
resolves 1 10.0.0.1 "$own"
resolves 1 224.0.0.9 01:00:5e:00:00:09
resolves "$ipv6" ff02::1:5 33:33:00:01:00:05
resolve 1 10.0.0.3
[[ $(<"$T/out") == "error $(python3 -c 'import errno; print(errno.EHOSTUNREACH)')" ]] ||
  fail "an address that nobody has is $(<"$T/out")"

say "among 4,000 others"
for i in $(seq 0 3999); do
  printf 'neighbour replace 10.1.%d.%d dev eth0 lladdr 02:00:00:00:%02x:%02x nud permanent\n' $((i / 250)) $((i % 250)) $((i / 250)) $((i % 250))
done | ip_in a -batch -
resolves 1 10.0.0.2 "$peer" 100
resolves 1 10.1.3.7 02:00:00:00:03:07 100
