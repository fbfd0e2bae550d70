#!/bin/bash
# bandwidth.sh REGISTRATIONS: a vdevice reaches its rate limit, and tenants share a ceiling.
#
#      tenant red                        tenant blue
#   netns r1      netns r2            netns b1      netns b2
#   vr1 -- eth0 == eth0 -- vr2        vb1 -- eth0 == eth0 -- vb2
#   10.0.0.1      10.0.0.2            10.0.0.1      10.0.0.2
#
# Links within a tenant are direct unless a limit applies. In red, one queue pair writes 64 KiB; in
# blue, four write 1 MiB each. The test compares bytes moved, never times; all rates are far below
# what any machine can do.
. "$(dirname "$0")/lib.sh"
registrations=$1
setup
start_daemon
netns_add r1 r2 b1 b2
join r1 eth0 10.0.0.1/24 r2 eth0 10.0.0.2/24
join b1 eth0 10.0.0.1/24 b2 eth0 10.0.0.2/24
for n in r1 r2; do vdev_create "v$n" "$n" eth0 --tenant red; done
for n in b1 b2; do vdev_create "v$n" "$n" eth0 --tenant blue; done

moved() { # what vr1 and vb1 were paced to move so far
  ctl stats -o json | python3 -c '
import json, sys
rows = {(r["scope"], r["name"]): r["value"] for r in json.load(sys.stdin)}
print(*(rows[v, "paced_bytes"] for v in ("vr1", "vb1")))'
}
moves() { # VDEVICE 1|2: it is paced, and moves something
  local before after
  read -ra before <<<"$(moved)"
  sleep 0.2
  read -ra after <<<"$(moved)"
  [[ ${after[$2 - 1]} -gt ${before[$2 - 1]} ]]
}
# measure: sets RED and BLUE to the bytes that each tenant moved within some seconds, and TIME to
# the microseconds.
measure() {
  local before after began
  sleep 0.5  # what was saved up before is gone
  began=${EPOCHREALTIME/./}
  read -ra before <<<"$(moved)"
  sleep 3
  read -ra after <<<"$(moved)"
  TIME=$((${EPOCHREALTIME/./} - began))
  RED=$((after[0] - before[0]))
  BLUE=$((after[1] - before[1]))
  echo "   red $((RED / 1000)) kB, blue $((BLUE / 1000)) kB in $((TIME / 1000)) ms"
}
# ratio LOW HIGH: red to blue, in percent.
ratio() {
  local percent=$((RED * 100 / (BLUE + 1)))
  [[ $percent -ge $1 && $percent -le $2 ]] ||
    fail "red moved $percent% of what blue did; right is from $1% to $2%"
}
# at_most BYTES RATE: BYTES does not exceed what RATE and its burst allow in TIME.
at_most() {
  [[ $1 -le $(($2 * (TIME / 1000 + 150) / 1000 + 4000000)) ]] || fail "$1 bytes are too many for $2 a second"
}
writer() { # NAME A B ARGUMENTS...
  local name=$1 a=$2 b=$3
  shift 3
  spawn "$name-server" "$b" nobody ib_write_bw -F -D 300 -d "v$b" -x "$(gid_index "$b" "v$b" 10.0.0.2)" "$@"
  wait_until 20 listens "$name-server" || fail "$name: the server does not listen"
  spawn "$name" "$a" nobody ib_write_bw -F -D 300 -d "v$a" -x "$(gid_index "$a" "v$a" 10.0.0.1)" "$@" 10.0.0.2
}
runs() { ! ended "${PID[red]}" && ! ended "${PID[blue]}"; }
traffic() { ctl vdev show "$1" | sed -nE 's/^ *traffic +([a-z]*).*/\1/p'; }

say "without a limit vrdmad has nothing to do with it"
writer red r1 r2 -s 65536 -t 256  # enough to do also for one that has to wait for a processor
writer blue b1 b2 -s 1048576 -q 4 -t 16
qp_in_use() { [[ $(ctl quota show "$1" -o json | tr -d '\n ') =~ \"kind\":\"qp\",\"used\":[1-9] ]]; }
wait_until 20 qp_in_use vr1 || fail "red does not begin"
wait_until 20 qp_in_use vb1 || fail "blue does not begin"
sleep 1
[[ $(moved) == "0 0" && $(traffic vr1) == direct ]] || fail "direct links are paced: $(moved)"
[[ $(ctl qp list vr1) == *" direct "* ]] || fail "qp list does not say direct: $(ctl qp list vr1)"

say "a limit turns living direct links mediated, and both tenants keep to theirs"
ctl quota set vr1 bandwidth=40m
ctl quota set vb1 bandwidth=40m
[[ $(traffic vr1) == mediated ]] || fail "vr1 is not shown as mediated: $(ctl vdev show vr1)"
for one in vr1 vr2; do
  [[ $(ctl qp list $one) == *" mediated (rate limit) "* ]] || fail "qp list does not say why it is mediated: $(ctl qp list $one)"
done
wait_until 10 moves vr1 1 || fail "red is not paced"
wait_until 10 moves vb1 2 || fail "blue is not paced"
measure
ratio 95 105
at_most "$RED" 41943040
at_most "$BLUE" 41943040

say "without limits of their own they share what their parent has, equally"
ctl parent set soft --ceiling bandwidth=80m
ctl quota set vr1 bandwidth=max
ctl quota set vb1 bandwidth=max
measure
ratio 95 105
at_most $((RED + BLUE)) 83886080

say "a guarantee is kept, and a most too"
ctl quota set vr1 bandwidth_min=60m
measure
ratio 285 315
if ctl quota set vb1 bandwidth_min=30m 2>"$T/refused"; then fail "more is guaranteed than there is"; fi
grep -q 'parent soft: quota bandwidth_min: .* 94371840, the ceiling is 83886080' "$T/refused" ||
  fail "the refusal says: $(cat "$T/refused")"
if ctl parent set soft --ceiling bandwidth=50m 2>"$T/refused"; then fail "the ceiling goes below the guarantees"; fi
ctl quota set vr1 bandwidth_min=0
ctl quota set vb1 bandwidth=8m
measure
ratio 850 950

say "a tenant's ceiling bounds its vdevices"
ctl parent set soft --ceiling bandwidth=max
ctl quota set vb1 bandwidth=max
ctl tenant set red --ceiling bandwidth=20m
ctl tenant set blue --ceiling bandwidth=40m
measure
ratio 47 53
at_most "$RED" 20971520

say "and without limits all is direct again, with nothing lost"
ctl tenant set red --ceiling bandwidth=max
ctl tenant set blue --ceiling bandwidth=max
wait_until 10 stays 0.3 moved || fail "it is still paced"
[[ $(traffic vr1) == direct ]] || fail "vr1 is shown as mediated"
sleep 0.5
runs || fail "a program ended: $(tail -n 5 "$T/red.log" "$T/blue.log")"

say "messages are counted too"
ctl quota set vr1 msg_rate=100
ctl quota set vb1 msg_rate=50
measure
ratio 11 14  # twice the messages, a sixteenth of the size
runs || fail "a program ended: $(tail -n 5 "$T/red.log" "$T/blue.log")"
kill -9 "${PID[@]}"
for name in red blue red-server blue-server; do reap $name 5; done

say "so are registrations"
cp "$registrations" "$T/registrations"  # a build directory may be closed to other users
ctl quota set vr1 mr_rate=50
read -r done_ milliseconds <<<"$(on r1 nobody "$T/registrations" vr1)"
[[ $done_ -gt 50 && $done_ -le $((50 * milliseconds / 1000 + 52)) ]] ||
  fail "$done_ registrations in $milliseconds ms, with 50 a second"
[[ $(ctl stats vr1) =~ quota_refused_mr_rate\ +[1-9] ]] || fail "nobody is counted who waited"
