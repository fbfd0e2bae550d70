#!/bin/bash
# squat.sh: a tenant that can change addresses in its namespace cannot take a neighbour's address,
# in a fabric of two tenants.
#
#     netns a                    netns b
#   +-----------+              +-----------+
#   | va -- eth0| ============ |eth0 -- vb |   red's a adds 10.0.0.2 while blue's b is without it
#   +-----------+              +-----------+
. "$(dirname "$0")/../lib.sh"
setup
start_daemon
netns_add a b
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
field() { ctl vdev show "$1" -o json | python3 -c 'import json, sys
x = json.load(sys.stdin)
print((x[0] if isinstance(x, list) else x)[sys.argv[1]])' "$2"; }
has_gid() { [[ $(field "$1" gids) == *":$2'"* ]]; }
ignored() { [[ $(field "$1" addresses_ignored) -eq $2 ]]; }

say "alone in a fabric, a tenant has all that its interface has"
vdev_create va a eth0 --tenant red --fabric f
ip_in a address add 10.0.0.77/32 dev eth0
wait_until 5 has_gid va 10.0.0.77 || fail "va does not follow its interface"

say "another tenant joins: what red had when va was made stays, all else goes"
ip_in a address add 10.0.0.2/32 dev eth0
wait_until 5 has_gid va 10.0.0.2 || fail "va does not follow its interface"
vdev_create vb b eth0 --tenant blue --fabric f || fail "red's new address keeps blue out of the fabric"
has_gid vb 10.0.0.2 || fail "vb does not have its address"
has_gid va 10.0.0.1 || fail "va does not have its own any more"
if has_gid va 10.0.0.2 || has_gid va 10.0.0.77; then fail "va has more than at first: $(ctl gid list)"; fi
ignored va 2 || fail "counted: $(field va addresses_ignored)"

say "blue's address is away: red does not get it, also not after a restart"
ip_in a address delete 10.0.0.2/32 dev eth0
ip_in b address delete 10.0.0.2/24 dev eth0
gone() { ! has_gid vb 10.0.0.2; }
wait_until 5 gone || fail "vb still has the address"
ip_in a address add 10.0.0.2/32 dev eth0
wait_until 5 ignored va 3 || fail "counted: $(field va addresses_ignored)"
has_gid va 10.0.0.2 && fail "red takes blue's address: $(ctl gid list)"
ctl stats va | grep -qE 'addresses_ignored +3' || fail "the counter: $(ctl stats va | grep addresses)"
kill_daemon
start_daemon
has_gid va 10.0.0.2 && fail "red takes blue's address at a restart: $(ctl gid list)"
has_gid va 10.0.0.1 || fail "va does not have its own any more"
ip_in b address add 10.0.0.2/24 dev eth0
wait_until 5 has_gid vb 10.0.0.2 || fail "blue does not get its address back"

say "nor by blue's MAC, whose link-local address is a GID too"
ip_in b link set eth0 address 02:00:00:00:00:b0
ip_in a link set eth0 address 02:00:00:00:00:b1
sleep 0.5
has_gid va ":ff:fe00:b1" && fail "another MAC gives va a GID: $(ctl gid list)"

say "prefixes: what is in them comes and goes, all else is ignored"
ctl vdev delete va
vdev_create va a eth0 --tenant red --fabric f --addresses 10.0.0.1,10.7.0.9/16
[[ $(field va addresses) == "['10.0.0.1/32', '10.7.0.0/16']" ]] || fail "shown: $(field va addresses)"
has_gid va 10.0.0.1 || fail "va does not have the address of its prefix"
ip_in a address add 10.7.1.1/24 dev eth0
wait_until 5 has_gid va 10.7.1.1 || fail "va does not get an address of its prefix"
ip_in a address add 10.8.1.1/24 dev eth0
sleep 0.5
has_gid va 10.8.1.1 && fail "va gets an address outside of its prefixes"
if vdev_create vc b eth0 --addresses 10.0.0.0/33 2>"$T/err"; then fail "10.0.0.0/33 is a prefix"; fi
grep -q "is not an address prefix" "$T/err" || fail "another error: $(<"$T/err")"

say "an address that is refused and comes and goes does not fill the log"
netns_add c
loose c eth0
vdev_create vd c eth0 --tenant red --fabric f --addresses 10.7.0.0/16
has_gid va 10.7.1.1 || fail "va has lost the address of its prefix"
began=$SECONDS before=$(stat_of daemon gids_refused)
refused() { echo $(($(stat_of daemon gids_refused) - before)); }
for round in {1..10}; do
  for _ in {1..20}; do
    ip_in c address add 10.7.1.1/24 dev eth0
    sleep 0.03
    ip_in c address delete 10.7.1.1/24 dev eth0
    sleep 0.03
  done
  [[ $(refused) -lt 60 ]] || break
done
lines=$(grep -c 'vd: GID ::ffff:10.7.1.1 is held by vdevice' "$T/vrdmad.log")
took=$((SECONDS - began))
say "$(refused) refusals in $took s, $lines lines"
[[ $lines -gt 0 && $lines -le $((18 + took)) ]] || fail "too many lines, after $round rounds"
