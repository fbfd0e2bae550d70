#!/bin/bash
# apply.sh LIBRARY: vdevices, budgets and fabrics become as a file says, again and again, and also when vrdmactl or
# vrdmad is killed in the middle.
#
#     netns a         netns b
#   +----------+    +----------+
#   | eth0..3  |    | eth0..3  |   a disk that blocks while $T/still exists
#   +----------+    +----------+
. "$(dirname "$0")/lib.sh"
setup
export VRDMA_SLOW_DISK=$T/still
LD_PRELOAD=$1 start_daemon
netns_add a b
for ns in a b; do
  for i in 0 1 2 3; do loose_commands "eth$i"; done | ip_in "$ns" -batch -
done
A=$(ns a) B=$(ns b)

vdev() { # NAME NETNS NETDEV [LINES]
  printf '[[vdev]]\nname = "%s"\nnetns = "%s"\nnetdev = "%s"\n%s\n' "$@"
}
apply() { ctl apply -f "$T/f.toml" "$@" >"$T/out" 2>"$T/err"; }
expect() { # STATUS COMMAND...: what it prints is in $T/out and $T/err
  local status=0
  "${@:2}" >"$T/out" 2>"$T/err" || status=$?
  [[ $status -eq $1 ]] || fail "${*:2}: ends with $status, not $1: $(cat "$T/out" "$T/err")"
}
diff_is() { expect "$1" ctl diff -f "$T/f.toml" "${@:2}"; }
names() { ctl vdev list -o json | python3 -c 'import json,sys; print(*sorted(v["name"] for v in json.load(sys.stdin)))'; }
limit_of() { ctl quota show "$1" | awk -v kind="$2" '$2 == kind { print $4 }'; }

say "a file is applied once, and then there is nothing to do"
{
  echo 'set = "lab"'
  printf '[fabric.f]\nreach = "network"\npeers = ["10.0.0.0/8"]\n[tenant.red]\ndefault.qp = 8\nceiling = { qp = 40 }\n'
  vdev a0 "$A" eth0 'tenant = "red"'
  vdev a1 "$A" eth1 $'tenant = "red"\nfabric = "f"\nquota = { qp = 20, mr_bytes = "1g" }\naddresses = ["10.0.0.0/24"]'
  vdev b0 "$B" eth0 $'allow = ["raw-packet"]\nno_direct = true\ngid_layout = "mlx5"\nlabels = { team = "x" }'
} >"$T/f.toml"
diff_is 1
grep -q "^create vdev $A/a0" "$T/out" || fail "diff does not say what is missing: $(cat "$T/out")"
expect 0 ctl apply -f "$T/f.toml" --dry-run
[[ -z $(names) ]] || fail "a dry run makes $(names)"
apply || fail "it is refused: $(cat "$T/err")"
[[ $(names) == "a0 a1 b0" && $(limit_of a0 qp) -eq 8 && $(limit_of a1 qp) -eq 20 ]] || fail "it made $(names)"
[[ $(ctl fabric list f | tail -1) == *10.0.0.0/8 ]] || fail "the fabrics are $(ctl fabric list)"
diff_is 0
apply || fail "the second time: $(cat "$T/err")"
[[ $(cat "$T/out") == "nothing to do" ]] || fail "the second time it does: $(cat "$T/out")"

say "what is written is what there is"
ctl export >"$T/written.toml"
expect 0 ctl apply -f "$T/written.toml"
grep -qx "nothing to do" "$T/out" || fail "what export wrote changes: $(cat "$T/out" "$T/written.toml")"
ctl export | ctl apply -f - >"$T/out"
grep -qx "nothing to do" "$T/out" || fail "by a pipe it changes: $(cat "$T/out")"

say "budgets and quotas change in an order that works"
sed -i 's/ceiling = { qp = 40 }/ceiling = { qp = 30 }/; s/qp = 20, /qp = 22, /; s/default.qp = 8/default = { qp = 7, mr = 50 }/' "$T/f.toml"
apply || fail "it is refused: $(cat "$T/err")"
[[ $(limit_of a0 qp) -eq 7 && $(limit_of a1 qp) -eq 22 && $(limit_of a0 mr) -eq 50 ]] || fail "limits: $(ctl quota show a0)"
sed -i 's/default = { qp = 7, mr = 50 }/default.qp = 7/' "$T/f.toml"
apply || fail "it is refused: $(cat "$T/err")"
[[ $(limit_of a0 mr) -eq 131072 ]] || fail "a default that has left the file still holds: $(limit_of a0 mr)"
diff_is 0

say "every mistake is named with its line, and nothing is changed"
sed 's/qp = 22/qp = 25/; s/^set =/sett =/; s/raw-packet/raw-paket/' "$T/f.toml" >"$T/g.toml"
expect 1 ctl apply -f "$T/g.toml"
grep -q 'g.toml, line 1: .*sett.*do you mean set' "$T/err" && grep -q "g.toml, line $(grep -n paket "$T/g.toml" | cut -d: -f1): " "$T/err" ||
  fail "the mistakes are not named: $(cat "$T/err")"
grep -q '2 mistakes; nothing was changed' "$T/err" || fail "not said: $(cat "$T/err")"
expect 2 ctl diff -f "$T/g.toml"
sed 's/qp = 22/qp = 25/' "$T/f.toml" >"$T/g.toml"
expect 1 ctl apply -f "$T/g.toml"
grep -q 'line 5: tenant red: quota qp: the limits of its vdevices reach 32, the ceiling allows 30' "$T/err" || fail "$(cat "$T/err")"
expect 1 ctl apply -f /nope
expect 1 ctl apply -f "$T"
expect 2 ctl apply
diff_is 0

say "labels change on the living vdevice"
number=$(ctl vdev show b0 -j | grep '"id"')
sed -i 's/team = "x"/team = "y", stage = "test"/' "$T/f.toml"
diff_is 1
apply || fail "it is refused: $(cat "$T/err")"
diff_is 0
[[ $(ctl vdev list b0 --columns labels) == *stage=test*team=y* && $(ctl vdev show b0 -j | grep '"id"') == "$number" ]] ||
  fail "b0: $(ctl vdev show b0)"

say "what cannot be changed is refused, or made again if asked"
sed -i 's/mlx5/dense/' "$T/f.toml"
expect 1 apply
grep -q "vdev 'b0' .*: gid_layout: mlx5, then dense: this cannot be changed; --recreate" "$T/err" || fail "$(cat "$T/err")"
apply --recreate || fail "it is refused: $(cat "$T/err")"
diff_is 0

say "one object that fails leaves the others changed, and is as before"
{ sed 's/default.qp = 7/default.qp = 6/; s/eth0\(.*\)$/eth0\1/' "$T/f.toml"; vdev bad "$B" eth9; } >"$T/g.toml"
sed -i '/^name = "b0"/,/^gid/s/gid_layout = "dense"/gid_layout = "mlx5"/; /^name = "b0"/,/^gid/s/netdev = "eth0"/netdev = "eth8"/' "$T/g.toml"
expect 1 ctl apply -f "$T/g.toml" --recreate
[[ $(grep -c "eth[89]" "$T/err") -eq 2 && $(names) == "a0 a1 b0" && $(limit_of a0 qp) -eq 6 ]] || fail "$(names): $(cat "$T/err")"
apply || fail "b0 is not as before: $(cat "$T/err")"

say "prune deletes what the set has made, and nothing else"
vdev_create hand b eth1
sed "/^name = \"b0\"/,\$d" "$T/f.toml" | sed '$d' >"$T/g.toml"
expect 0 ctl apply -f "$T/g.toml"
[[ $(names) == "a0 a1 b0 hand" ]] || fail "without --prune it deletes: $(names)"
expect 0 ctl apply -f "$T/g.toml" --prune
[[ $(names) == "a0 a1 hand" ]] || fail "left are: $(names)"

say "vrdmactl and vrdmad are killed in the middle, and apply completes"
for victim in ctl daemon ctl; do
  for i in {1..70}; do vdev "$victim$RANDOM-$i" "$A" "eth$((i % 2 + 2))" "fabric = \"x$RANDOM-$i\""; done >>"$T/f.toml"
  before=$(names | wc -w)
  touch "$T/still"  # vrdmad has made the first vdevice, and does not say so
  VRDMA_RUN_DIR=$R "$BUILD/bin/vrdmactl" apply -f "$T/f.toml" >"$T/killed.log" 2>&1 &
  PID[apply]=$!
  wait_until 10 eval "[[ \$(names | wc -w) -gt $before ]]" || fail "apply does nothing: $(cat "$T/killed.log")"
  [[ $(names | wc -w) -eq $((before + 1)) ]] || fail "apply does not wait for the disk: $(names)"
  if [[ $victim == ctl ]]; then
    kill -9 "${PID[apply]}"
    wait "${PID[apply]}" 2>/dev/null || true
    rm "$T/still"
  else
    kill_daemon
    rm "$T/still"
    wait "${PID[apply]}" && fail "apply says that it is done: $(cat "$T/killed.log")"
    grep -q 'run apply again' "$T/killed.log" || fail "it says: $(cat "$T/killed.log")"
    LD_PRELOAD=$1 start_daemon
  fi
  unset 'PID[apply]'
  apply || fail "it is refused: $(cat "$T/err")"
  diff_is 0
done
[[ $(names | wc -w) -eq 214 ]] || fail "there are: $(names)"
