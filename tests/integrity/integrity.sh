#!/bin/bash
# integrity.sh PROGRAM MODE SECONDS [ACCIDENT...]: random verbs between two or more programs, which predict every byte of
# every buffer and count every completion (README.md here).
#
#   direct     two programs of one tenant           mediated  of two tenants in one fabric
#   network    in two fabrics, as on two hosts      all       four: a peer of each kind to the first one
#
# VRDMA_SEED repeats a run but for its timing.
. "$(dirname "$0")/../integration/lib.sh"
setup
program=$(realpath "$1") mode=$2 seconds=$3
shift 3
start_daemon
seed=${VRDMA_SEED:-$RANDOM$RANDOM}
install -m 755 "$program" "$T/integrity"
options=(--from "${VRDMA_EPOCH:-0}")

# va and vb of one tenant, vc of another one in the same fabric, vd in another fabric: all on one bridge.
four_members() {
  local number=1 space
  netns_add bridge a b c d
  ip_in bridge link add name lan mtu 4200 type bridge
  ip_in bridge link set lan up
  for space in a b c d; do
    ip_in $space link add eth0 mtu 4200 type veth peer name to-$space netns "$(ns bridge)"
    ip_in $space address add 10.0.0.$number/24 dev eth0
    ip_in $space link set eth0 up
    ip_in bridge link set to-$space mtu 4200 master lan up
    number=$((number + 1))
  done
  vdev_create va a eth0 --tenant red --fabric shared --addresses 0.0.0.0/0,::/0
  vdev_create vb b eth0 --tenant red --fabric shared --addresses 0.0.0.0/0,::/0
  vdev_create vc c eth0 --tenant blue --fabric shared --addresses 0.0.0.0/0,::/0
  vdev_create vd d eth0 --tenant green --fabric other --addresses 0.0.0.0/0,::/0
  ctl fabric set shared --reach network >/dev/null
  ctl fabric set other --reach network >/dev/null
}

case $mode in
  direct | mediated)
    two_vdevices "$mode"
    options+=(--unreliable)
    members=("a va $INDEX_A" "b vb $INDEX_B")
    ;;
  network)
    two_hosts
    members=("a va $(gid_index a va 10.0.0.1)" "b vb $(gid_index b vb 10.0.0.2)")
    ;;
  all)
    four_members
    members=("a va $(gid_index a va 10.0.0.1)" "b vb $(gid_index b vb 10.0.0.2)" "c vc $(gid_index c vc 10.0.0.3)"
      "d vd $(gid_index d vd 10.0.0.4)")
    ;;
  *) fail "'$mode' is no mode" ;;
esac

say "VRDMA_SEED=$seed"
spawn meeting a root "$T/integrity" serve "$T/meeting" "${#members[@]}" "$seconds"
wait_until 10 grep -qs ready "$T/meeting.log" || fail "the members cannot meet: $(<"$T/meeting.log")"
for number in "${!members[@]}"; do
  read -r space device index <<<"${members[number]}"
  spawn "member$number" "$space" nobody "$T/integrity" join "$T/meeting" "$number" "${#members[@]}" "$device" "$index" \
    "$seed" "${options[@]}"
done
# They end together; one that fails ends alone.
one_has_ended() {
  local number
  for number in "${!members[@]}"; do
    if ended "${PID[member$number]}"; then return 0; fi
  done
  return 1
}
wait_until $((seconds + 100)) one_has_ended || fail "VRDMA_SEED=$seed: the run does not end"
grep -hs FAILED "$T"/member*.log && fail "VRDMA_SEED=$seed: $(cat "$T"/member*.log)"
for number in "${!members[@]}"; do
  reap "member$number" 20
  [[ $REAPED -eq 0 ]] || fail "VRDMA_SEED=$seed: $(cat "$T"/member*.log)"
  no_sanitizer integrity "$T/member$number.log"
done
reap meeting 10
say "member 0"
cat "$T/member0.log"
