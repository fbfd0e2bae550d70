#!/bin/bash
# identity.sh FLOW: names are unique in a namespace, ids everywhere; owners, labels, --if-absent.
#
#     netns a                          netns b                netns c
#   +---------------+     veth       +---------------+      +------------+
#   | mlx5_0 -- eth0| ============== |eth0 -- mlx5_0 |      | eth0, eth1 |
#   +---------------+                +---------------+      +------------+
. "$(dirname "$0")/lib.sh"
setup
cp "$1" "$T/lib/flow"
metrics=(--metrics "unix:$T/metrics.sock")
start_daemon "${metrics[@]}"
netns_add a b c
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
loose c eth0
loose c eth1
A=$(ns a)/mlx5_0
B=$(ns b)/mlx5_0

field() { # VDEVICE FIELD
  ctl vdev show "$1" -o json | python3 -c '
import json, sys
print(json.load(sys.stdin)[0][sys.argv[1]])' "$2"
}
is_gone() { ! ctl vdev show "$1" >/dev/null 2>&1; }
logged() { grep -qF -- "$1" "$T/vrdmad.log"; }
refused() { # PATTERN COMMAND...: fails with one line that says so
  local pattern=$1 status=0
  shift
  "$@" >"$T/out" 2>"$T/err" || status=$?
  [[ ( $status -eq 1 || $status -eq 125 ) && $(wc -l <"$T/err") -eq 1 ]] || { cat "$T/err"; fail "$*: status $status"; }
  grep -qE -- "$pattern" "$T/err" || { cat "$T/err"; fail "$*: it does not say '$pattern'"; }
  say "refused: $(cat "$T/err")"
}
restart() { sleep 0.4; kill_daemon; start_daemon "${metrics[@]}"; }

say "two namespaces, one name"
vdev_create mlx5_0 a eth0 --fabric f --quota qp=16
ctl vdev show mlx5_0 >/dev/null || fail "the name is not enough"
vdev_create mlx5_0 b eth0 --fabric f
refused "netns '$(ns a)' already" vdev_create mlx5_0 a eth0
refused "already" ctl vdev create mlx5_0 --netns "/run/netns/$(ns a)" --netdev eth0
id_a=$(field "$A" id) id_b=$(field "$B" id)
[[ $id_a != "$id_b" ]] || fail "both have the id $id_a"
[[ $(field "id:$id_b" netns) == "$(ns b)" ]] || fail "id:$id_b is another one"
[[ $(field "/run/netns/$(ns b)/mlx5_0" id) == "$id_b" ]] || fail "a path does not name its namespace"
[[ $(field "$A" tenant) == "vdev/$id_a" && $(field "$B" tenant) == "vdev/$id_b" ]] ||
  fail "the tenants are $(field "$A" tenant) and $(field "$B" tenant)"
for words in "vdev show" "vdev delete" "quota show" "gid list" "stats" "conn list" "qp list" "conn stats" \
             "quota show --cgroup"; do
  # shellcheck disable=SC2086  # words
  refused "there are 2 vdevices 'mlx5_0', .*: $A \(id:$id_a\), $B \(id:$id_b\)\$" ctl $words mlx5_0
done
refused "2 vdevices" ctl quota set mlx5_0 qp=20
refused "2 vdevices" ctl exec mlx5_0 -- true
refused "no vdevice 'mlx5_0' in netns '$(ns c)'" ctl vdev show "$(ns c)/mlx5_0"
[[ $(ctl vdev list | grep -c '^mlx5_0 ') -eq 2 ]] || fail "the list: $(ctl vdev list)"

say "each by NETNS/NAME"
limit_of() { ctl quota show "$1" | awk '$2 == "qp" { print $4 }'; }
ctl quota set "$A" qp=20
[[ $(limit_of "$A") -eq 20 && $(limit_of "$B") -ne 20 ]] || fail "qp: $(limit_of "$A"), $(limit_of "$B")"
ctl quota set "id:$id_b" qp=30
[[ $(limit_of "$B") -eq 30 ]] || fail "id:$id_b: its limit is $(limit_of "$B")"
for side in a b; do
  [[ $side == a ]] && vdevice=$A hex=0a00:0001 || vdevice=$B hex=0a00:0002
  # A namespace shows only its own vdevice, with the address of that namespace.
  ctl exec "$vdevice" -- sh -c 'cat /sys/class/infiniband/mlx5_0/ports/1/gids/*' >"$T/gids" ||
    fail "exec $vdevice"
  grep -q "$hex\$" "$T/gids" || fail "exec $vdevice: the GIDs are $(<"$T/gids")"
  [[ $(grep -cvE '^(0000:){7}0000$' "$T/gids") -eq $(ctl gid list "$vdevice" | grep -c '^mlx5_0 ') ]] ||
    fail "exec $vdevice: GIDs of another"
done
ctl gid list | grep -q "^$B .*10.0.0.2" || fail "gid list does not tell them apart"
curl -sS --fail --max-time 10 --unix-socket "$T/metrics.sock" http://vrdma/metrics >"$T/metrics"
for one in "$(ns a)\",id=\"$id_a" "$(ns b)\",id=\"$id_b"; do
  grep -q "^vrdma_sessions{vdevice=\"mlx5_0\",netns=\"$one\"" "$T/metrics" || fail "no metric of $one"
done
[[ -z $(grep -v '^#' "$T/metrics" | sed 's/ [^ ]*$//' | sort | uniq -d) ]] || fail "a metric is there twice"

say "completion offers what is not ambiguous"
vdev_create vc c eth0
complete_words() { # WORD: what may stand behind "vrdmactl vdev show"
  PATH=$BUILD/bin:$PATH VRDMA_RUN_DIR=$R bash -c '
    source <(vrdmactl completion bash)
    COMP_WORDS=(vrdmactl vdev show "$1") COMP_CWORD=3 COMP_LINE="vrdmactl vdev show $1" COMP_POINT=1000
    _vrdmactl
    printf "%s\n" "${COMPREPLY[@]}" | sort' - "$1"
}
[[ $(complete_words "") == "$(printf '%s\n' "$A" "$B" vc | sort)" ]] || fail "it offers $(complete_words "")"
[[ $(complete_words "$(ns c)/") == "$(ns c)/vc" ]] || fail "it offers $(complete_words "$(ns c)/")"
ctl vdev delete vc

say "a restart changes nothing, and both sessions are taken over"
lasting() { # all but what is in use, or was
  ctl vdev show -o json | python3 -c '
import json, sys
for vdev in json.load(sys.stdin):
  del vdev["sessions"], vdev["reached"]
  for row in vdev["quota"]: del row["used"]
  print(json.dumps(vdev, indent=1))'
}
before=$(lasting)
has_sessions() { [[ $(field "$A" sessions) -eq $1 && $(field "$B" sessions) -eq $1 ]]; }
flow() { # SIDE NAMESPACE ADDRESS [PEER]
  spawn "$1" "$2" nobody "$T/lib/flow" mlx5_0 "$(gid_index "$2" mlx5_0 "$3")" "$PORT" 8 poll "${@:4}"
}
begin() {
  flow server a 10.0.0.1
  wait_until 20 listens server || fail "the server does not listen"
  flow client b 10.0.0.2 10.0.0.1
  wait_until 10 has_sessions 1 || fail "there are no sessions"
}
both_succeed() {
  for side in client server; do
    reap $side 40
    [[ $REAPED -eq 0 ]] || fail "the $side ends with status $REAPED"
  done
  wait_until 5 has_sessions 0 || fail "sessions are left"
}
begin
restart
for vdevice in "$A" "$B"; do
  # The worker logs it, perhaps after the daemon's first answer.
  wait_until 20 logged "vdevice $vdevice: took over the session" || fail "the session of $vdevice is not taken over"
done
[[ $(lasting) == "$before" ]] || { diff <(lasting) <(echo "$before"); fail "not as it was"; }
both_succeed

say "an id and its tenant are nobody's afterwards"
ctl vdev delete "$B"
ctl vdev show mlx5_0 >/dev/null || fail "the name is not enough again"
vdev_create mlx5_0 b eth0 --fabric f
[[ $(field "$B" id) -gt $id_b ]] || fail "the id $(field "$B" id) is not new"
refused "no vdevice 'id:$id_b'" ctl vdev show "id:$id_b"
last=$(field "$B" id)
ctl vdev delete "$B"
restart
vdev_create mlx5_0 b eth0 --fabric f
[[ $(field "$B" id) -gt $last ]] || fail "a restart makes the id $(field "$B" id) of $last again"

say "--if-absent: the same again is no mistake, something else is one"
again=(vc c eth0 --tenant red --quota qp=7,mr=9 --allow raw-packet --label pod=web-0)
vdev_create "${again[@]}"
id=$(field vc id)
vdev_create "${again[@]}" --if-absent || fail "the same is refused"
ctl quota set vc qp=8
vdev_create "${again[@]}" --if-absent || fail "what was changed later is no difference"
[[ $(field vc id) == "$id" && $(limit_of vc) -eq 8 ]] || fail "it was made anew"
restart
ctl vdev create vc --netns "/run/netns/$(ns c)" --netdev eth0 --tenant red --quota mr=9 --quota qp=7 \
  --allow raw-packet --label pod=web-0 --if-absent || fail "the same, said in another way, is refused"
[[ $(field vc id) == "$id" ]] || fail "it was made anew"
refused "netdev eth0, not eth1" vdev_create vc c eth1 "${again[@]:3}" --if-absent
refused "quota qp=7, not qp=8" vdev_create vc c eth0 --tenant red --quota qp=8,mr=9 \
  --allow raw-packet --label pod=web-0 --if-absent
refused "label pod=web-0, not pod=web-1" vdev_create vc c eth0 --tenant red --quota qp=7,mr=9 \
  --allow raw-packet --label pod=web-1 --if-absent
refused "tenant red, not none" vdev_create vc c eth0 --if-absent
refused "already" vdev_create "${again[@]}"
ctl vdev delete vc
pids=()
for ((i = 0; i < 8; ++i)); do
  vdev_create "${again[@]}" --if-absent & pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || fail "one of several at once is refused"; done
[[ $(ctl vdev list | grep -c '^vc ') -eq 1 ]] || fail "there are several"
refused "16" vdev_create vd c eth1 --label k{1..17}=v
refused "is not a valid label key" vdev_create vd c eth1 --label 'a b=v'

say "a vdevice ends with its owner"
own() { # NAME [further arguments]: of a new process
  spawn owner c root sleep 1000
  vdev_create "$1" c eth1 --owner "${PID[owner]}" --label container=c0ffee "${@:2}"
}
disown_it() { kill -9 "${PID[owner]}"; reap owner 5; }
own ve --end-with-owner
ctl vdev show ve | grep -qx " *owner  *process ${PID[owner]}; the vdevice ends with it" || fail "it is not shown"
ctl vdev show ve | grep -qx " *label  *container=c0ffee" || fail "the label is not shown"
kept=$(field ve owner)
[[ $kept == *"'pid': ${PID[owner]}, "*"'ended': False"* ]] || fail "the owner is $kept"
restart
[[ $(field ve owner) == "$kept" && $(field ve labels) == "{'container': 'c0ffee'}" ]] || fail "not as it was"
owner=${PID[owner]}
disown_it
wait_until 5 is_gone ve || fail "it outlives its owner"
logged "vdevice $(ns c)/ve: its owner, process $owner, has ended, so it is deleted" || fail "the log does not say why"
restart
is_gone ve || fail "it comes back"
refused "there is no process $owner" vdev_create ve c eth1 --owner "$owner"

say "also when it ended while no daemon ran, and another process has its number"
own ve --end-with-owner
kill_daemon
disown_it
start_daemon "${metrics[@]}"
is_gone ve || fail "it outlives its owner"
own ve --end-with-owner
kill_daemon
python3 -c '
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("UPDATE vdev SET owner_start = owner_start - 1 WHERE owner_pid != 0")
db.commit()' "$S/state.db"
start_daemon "${metrics[@]}"
is_gone ve || fail "another process of its number is taken for its owner"
logged "another process has its pid, so it is deleted" || fail "the log does not say why"
disown_it

say "also while it is lost"
own ve --end-with-owner
kill_daemon
hide_netns c
start_daemon "${metrics[@]}"
[[ $(field ve port_state) == LOST ]] || fail "it is not lost"
sleep 3.5  # what is lost is tried again after 1, 3 and 7 s, and its owner's end is seen at once
disown_it
wait_until 2 is_gone ve || fail "it outlives its owner"
show_netns c
wait_until 20 eval '[[ $(field vc port_state) == ACTIVE ]]' || fail "vc does not come back"

say "but only if that was said"
own ve
disown_it
wait_until 5 eval 'ctl vdev show ve | grep -q "owner  *process .*, which has ended"' || fail "its end is not shown"
restart
[[ $(field ve owner) == *"'ended': True"* && $(field ve port_state) == ACTIVE ]] || fail "it is not there any more"
