#!/bin/bash
# quotas.sh RACER: programs with many threads create and destroy objects of every kind at the limits of two vdevices of one
# tenant, while an operator changes the limits and its ceiling, and some are killed. No limit is exceeded, and nothing stays
# charged.
#
#     netns a, tenant red
#   +----------------------+
#   | va eth0, 3 racers    |
#   | vb eth1, 2 racers    |
#   +----------------------+
. "$(dirname "$0")/../lib.sh"
setup
start_daemon
netns_add a
loose a eth0
loose a eth1
vdev_create va a eth0 --tenant red --quota qp=20,cq=20,pd=10,mr=30,srq=5,ah=9,mw=7,mr_bytes=8m
vdev_create vb a eth1 --tenant red --quota qp=20,mr=30
ctl tenant set red --ceiling qp=30 --overcommit 1000
cp "$1" "$T/racer"
seed=${VRDMA_SEED:-$RANDOM}
say "VRDMA_SEED=$seed"
over_limit() { # which kinds of which vdevices have more than their limit
  ctl vdev list -o json | python3 -c '
import json, sys
for row in json.load(sys.stdin):
    for kind in row["quota"]:
        if kind["used"] > kind["limit"] and not kind["kind"].endswith(("rate", "bandwidth", "cpu")):
            print(row["name"], kind)'
}
charged() { # what is still in use
  ctl vdev list -o json | python3 -c '
import json, sys
objects = {"context", "pd", "mr", "mr_bytes", "cq", "cqe", "qp", "srq", "ah", "mw"}
print([(row["name"], kind) for row in json.load(sys.stdin) for kind in row["quota"] if kind["used"] and kind["kind"] in objects])'
}
for name in r1 r2 r3; do spawn $name a nobody "$T/racer" va 6 4000 $((seed + ${name#r})); done
for name in r4 r5; do spawn $name a nobody "$T/racer" vb 6 4000 $((seed + ${name#r})); done
changed=0
for i in {1..8}; do
  for change in "quota set va qp=$((8 + (seed + 7 * i) % 16)),mr=$((20 + (seed + 5 * i) % 16))" \
    "tenant set red --ceiling qp=$((20 + (seed + 3 * i) % 20))"; do
    # shellcheck disable=SC2086  # words
    if ctl $change >"$T/change" 2>&1; then
      changed=$((changed + 1))
    else
      grep -qE 'vdevices? uses? [0-9]+' "$T/change" || fail "$change: $(<"$T/change")"
    fi
  done
  [[ -z $(over_limit) ]] || fail "more than the limit: $(over_limit)"
  sleep 0.2
done
say "$changed of 16 changes of limits were possible"
kill_programs r3 r5
for name in r1 r2 r4; do
  reap $name 30
  [[ $REAPED -eq 0 ]] || fail "$name ends with $REAPED: $(<"$T/$name.log")"
done
is_free() { [[ $(charged) == '[]' ]]; }
wait_until 20 is_free || fail "still charged: $(charged)"
