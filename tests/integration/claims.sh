#!/bin/bash
# claims.sh PUT_CLAIM: what a driver of Kubernetes promises to containers of pods, and what they get by it.
#
#     netns a (two containers of a pod)     netns b (a container of another pod)
#   +----------------------------------+  +------------+
#   | eth0 10.0.0.1                    |==| 10.0.0.2   |
#   +----------------------------------+  +------------+
. "$(dirname "$0")/lib.sh"
put_claim=$1
setup
# Two vdevices of a namespace cannot have one address in one fabric.
printf '[small]\nquota = qp=64,mr=100\nannotations = quota\nusers = 1001\n[own]\nfabric = tenant\n' >"$T/classes.conf"
options=(--classes "$T/classes.conf" --audit-log "$T/audit.log")
start_daemon "${options[@]}"
cp "$(dirname "$0")/hook_client.py" "$T/"
netns_add a b
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24

put() { timeout 60 "$put_claim" "$R" "$@"; }
hook() { timeout 60 python3 "$T/hook_client.py" "$R/hook.sock" "$@"; }
container() { spawn "$1" "$2" root sleep 1000; wait_until 20 in_netns "$1" "$2" || fail "$1 does not start"; }
in_netns() { [[ $(stat -Lc %i "/proc/${PID[$1]}/ns/net") == "$(stat -Lc %i "/run/netns/$(ns "$2")")" ]]; }
dies() { kill -9 "${PID[$1]}"; reap "$1" 5; }
restart() { kill_daemon; start_daemon "${options[@]}"; }
count() { ctl vdev list -o json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)))'; }
has() { [[ $(count) -eq $1 ]]; }
claims() { ctl claim list | tail -n +2 | tr -s ' '; }
is_listed() { [[ $(claims) == "$1" ]]; }
says() { # PATTERN COMMAND...: it fails with a sentence
  local pattern=$1 before
  before=$(count)
  shift
  if "$@" >"$T/out" 2>&1; then fail "it succeeds: $* : $(cat "$T/out")"; fi
  [[ $(wc -l <"$T/out") -eq 1 ]] && grep -qE "$pattern" "$T/out" || fail "it does not say '$pattern': $(cat "$T/out")"
  wait_until 5 has "$before" || fail "what was refused changed the vdevices"
}
of_bank=(pod=p pod_namespace=bank pod_name=web-0 pod_uid=1-2 container_name=app)

say "a claim is on disk when it is answered"
[[ $(put u-1 bank/ledger data=small:qp=8 control=own) == u-1 ]] || fail "it is not put"
restart
both=$'u-1 bank/ledger control own - 0\nu-1 bank/ledger data small qp=8 0'
is_listed "$both" || fail "after kill -9 there are: $(claims)"

say "a container gets what the claim says, and its pod shares it"
container one a
got=$(hook setup c1 "${PID[one]}" claim=u-1 share=data "${of_bank[@]}" -- done) || fail "refused: $got"
[[ $got == "ok vrdma0 "* ]] || fail "the answer is $got"
shown=$(ctl vdev show vrdma0)
for label in claim=u-1 share=data class=small pod_namespace=bank; do
  grep -qE "label +$label\$" <<<"$shown" || fail "it has no label $label: $shown"
done
ctl quota show vrdma0 | awk '$2 == "qp" && $NF == 8 { qp = 1 } $2 == "mr" && $NF == 100 { mr = 1 } END { exit !(qp && mr) }' ||
  fail "its limits are not those of claim and class: $(ctl quota show vrdma0)"
on a root ibv_devinfo -d vrdma0 >/dev/null || fail "it does not work"
container two a
got=$(hook setup c2 "${PID[two]}" claim=u-1 share=data "${of_bank[@]}" -- done) || fail "refused: $got"
[[ $got == "ok vrdma0 "* ]] && has 1 || fail "the answer is $got"
got=$(hook setup c2 "${PID[two]}" claim=u-1 share=control "${of_bank[@]}" -- done) || fail "refused: $got"
[[ $got == "ok vrdma1 "* ]] && has 2 || fail "the answer is $got"
got=$(hook setup c2 "${PID[two]}" class=own "${of_bank[@]}" -- done) || fail "refused: $got"
[[ $got == "ok vrdma2 "* ]] && has 3 || fail "a class alone gives the vdevice of a claim: $got"
is_listed $'u-1 bank/ledger control own - 1\nu-1 bank/ledger data small qp=8 1' || fail "listed: $(claims)"

say "while a container has a vdevice by it, a claim neither changes nor goes"
in_use="^(vrdmactl: )?container c[12] has vdevice .*vrdma[01] by claim 'u-1': end it"
check_in_use() {
  put u-1 bank/ledger control=own data=small:qp=8 >/dev/null || fail "the same content is no success"
  says "$in_use before the claim changes" put u-1 bank/ledger data=small:qp=9
  says "$in_use, or delete the claim with --force" ctl claim delete u-1
}
check_in_use
restart
check_in_use
dies one
check_in_use
dies two
wait_until 5 is_listed "$both" || fail "listed: $(claims)"
put u-1 bank/ledger data=small:qp=9 >/dev/null || fail "a claim that is not in use cannot change"
is_listed "u-1 bank/ledger data small qp=9 0" || fail "listed: $(claims)"

say "--force takes the vdevice away from a container"
container one a
container two b
hook setup c1 "${PID[one]}" claim=u-1 share=data "${of_bank[@]}" -- done >/dev/null || fail "refused"
hook setup c2 "${PID[two]}" claim=u-1 share=data "${of_bank[@]}" -- done >/dev/null || fail "refused"
is_listed "u-1 bank/ledger data small qp=9 2" || fail "each pod has its own: $(claims)"
ctl claim delete u-1 --force || fail "it is not deleted"
has 0 || fail "its vdevices are left: $(ctl vdev list)"
is_listed "" || fail "listed: $(claims)"
ctl claim delete u-1 || fail "an unknown claim is no success"
restart
has 0 && is_listed "" || fail "it returns: $(claims) $(ctl vdev list)"

say "what is refused"
put u-1 bank/ledger data=small:qp=8 >/dev/null || fail "it is not put"
says "^refused vrdmad has no claim 'u-2': delete the pod" hook setup c1 "${PID[one]}" claim=u-2 share=data "${of_bank[@]}"
says "^refused claim 'u-1' has no share 'other'" hook setup c1 "${PID[one]}" claim=u-1 share=other "${of_bank[@]}"
says "^refused the pod is in namespace 'shop', and claim 'u-1' is for pods of namespace 'bank'" \
  hook setup c1 "${PID[one]}" claim=u-1 share=data pod_namespace=shop
says "^refused the container is in no pod" hook setup c1 "${PID[one]}" claim=u-1 share=data
for words in "claim=u-1" "share=data" "claim=u-1 share=data class=small"; do
  # shellcheck disable=SC2086
  says "^refused the hook must name a class, or a claim and a share" hook setup c1 "${PID[one]}" $words "${of_bank[@]}"
done
says "^refused annotation vrdma.io/quota: the quota of a claim" \
  hook setup c1 "${PID[one]}" claim=u-1 share=data quota=qp=1 "${of_bank[@]}"
user_hook() { setpriv --reuid 1001 --regid 1001 --clear-groups timeout 60 python3 "$T/hook_client.py" "$R/hook.sock" "$@"; }
says "^refused user 1001 may use no claim" \
  user_hook setup c1 "${PID[one]}" netns="/run/netns/$(ns a)" claim=u-1 share=data "${of_bank[@]}"
says "^refused user 1001 may use no claim" \
  user_hook setup c1 "${PID[one]}" netns="/run/netns/$(ns a)" claim=u-2 share=data "${of_bank[@]}"
says "there is no class 'large'" put u-3 bank/ledger data=large
says "the uid of the claim '../x' is invalid" put ../x bank/ledger data=small
says "quota|kind" put u-3 bank/ledger data=small:frogs=1
is_listed "u-1 bank/ledger data small qp=8 0" || fail "listed: $(claims)"
printf '[own]\n' >"$T/classes.conf"
says "^refused .*there is no class 'small'" hook setup c1 "${PID[one]}" claim=u-1 share=data "${of_bank[@]}"
printf '[small]\n' >"$T/classes.conf"
hook setup c1 "${PID[one]}" claim=u-1 share=data "${of_bank[@]}" -- done >/dev/null || fail "refused"
dies one
dies two
wait_until 5 has 0 || fail "a vdevice is left"
grep -q '"audit":"claim put".*namespace=bank name=ledger share=data class=small qp=8' "$T/audit.log" ||
  fail "the audit log does not say who put it"
grep -q '"claim delete"' "$T/audit.log" || fail "the audit log does not say who deleted it"

say "vrdmad is killed while claims are put: what was answered is there"
for round in 1 2 3; do
  put '*' "bank/round-$round" data=small:qp=8 >"$T/answered" 2>/dev/null &
  PID[putting]=$!
  some() { [[ $(wc -l <"$T/answered") -gt $((round * 7)) ]]; }
  wait_until 20 some || fail "nothing is put"
  kill_daemon
  reap putting 10
  start_daemon "${options[@]}"
  claims | awk -v name="bank/round-$round" '$2 == name { print $1 }' >"$T/listed"
  grep -vxFf "$T/listed" "$T/answered" && fail "these are lost"
  say "$(wc -l <"$T/answered") answered, $(wc -l <"$T/listed") there"
done
