#!/bin/bash
# churn.sh PROGRAM ROUNDS: vdevices are created, used and removed in every way, and nothing of them
# remains.
#
#   8 clients, each ROUNDS times:        netns: eth0 v0   eth1 v1   eth2 v2   eth3 v3
#                                                 PROGRAM uses all four
#   and then one of: delete the vdevices, the namespace or the netdevs, or kill the program, all
#   while it runs.
. "$(dirname "$0")/lib.sh"
setup
program=$1 rounds=$2
start_daemon
cp "$program" "$T/churn"

users=(root nobody)
round() { # CLIENT ROUND
  local space="$1-$2" i at status=0 pid
  ip netns add "$(ns "$space")"
  for i in 0 1 2 3; do loose_commands "eth$i"; done | ip_in "$space" -batch -
  for i in 0 1 2 3; do vdev_create "v$space-$i" "$space" "eth$i" --tenant "t$1"; done
  rm -f "$T/client-$1.log"  # else the last round's would say that this one has begun
  on "$space" "${users[RANDOM % 2]}" "$T/churn" $((RANDOM % 200)) >"$T/client-$1.log" 2>&1 &
  pid=$!
  wait_until 20 grep -qs begun "$T/client-$1.log" || { echo "the program does not begin"; return 1; }
  sleep ".0$((RANDOM % 9))"
  case $((RANDOM % 5)) in
    0) for i in 2 0 3 1; do ctl vdev delete "v$space-$i" >/dev/null; done ;;
    1) ip netns delete "$(ns "$space")" ;;  # lives on as long as the program
    2) for i in 0 2; do ip_in "$space" link delete "eth$i"; done ;;
    3) kill_all_in "$(ns "$space")" ;;
    4) ;;                                   # nothing happens to it
  esac
  wait $pid || status=$?
  # 124 and 125 of timeout(1) would be hangs.
  [[ $status -eq 0 || $status -eq 3 || $status -eq 137 || $status -eq 143 ]] || {
    cat "$T/client-$1.log"
    echo "client $1, round $2: the program ends with status $status"
    return 1
  }
  case $((RANDOM % 2)) in
    0) for i in 3 1 2 0; do ctl vdev delete "v$space-$i" >/dev/null 2>&1 || true; done ;;
    1) ;;
  esac
  [[ ! -e /run/netns/$(ns "$space") ]] || ip netns delete "$(ns "$space")"
}
client() { # CLIENT FIRST LAST
  local k
  for ((k = $2; k <= $3; ++k)); do round "$1" "$k" || { touch "$T/failed"; return; }; done
}
# Removes the namespaces that a killed client left.
finish_clients() {
  ip netns list | awk -v mine="^$(ns "")" '$1 ~ mine {print $1}' | xargs -r -n 1 ip netns delete
}
trap 'STATUS=$? LAST=$BASH_COMMAND; finish_clients; finish $STATUS "$LAST"' EXIT

all_clients() { # FIRST LAST
  local c pids=()
  for c in 0 1 2 3 4 5 6 7; do
    client "$c" "$1" "$2" 2>&1 &
    pids+=($!)
  done
  wait "${pids[@]}"
  [[ ! -e $T/failed ]] || fail "a client found what must not be"
}
none_left() { [[ $(ctl vdev list -o json | tr -d ' \n') != *'"name"'* ]]; }
resident() { awk '/^VmRSS/ {print $2}' "/proc/$DAEMON/status"; }  # KiB

# The kernel ends all namespaces of the host one after the other.
all_clients 1 2  # the daemon's own tables and pools have grown by then
wait_until 60 none_left || fail "vdevices outlive their namespaces: $(ctl vdev list)"
before=$(holdings) kib=$(resident)
all_clients 3 "$rounds"
wait_until 60 none_left || fail "vdevices outlive their namespaces: $(ctl vdev list)"
wait_until 20 holds_only "$before" || {
  echo "before: $before"
  echo "after: $(holdings)"
  fail "vrdmad holds more than before"
}
say "$((rounds * 32)) vdevices; resident: $kib KiB before, $(resident) KiB after"
# Sanitizers keep freed memory.
[[ -n ${VRDMA_TEST_PRELOAD:-} || $(resident) -le $((kib + kib / 4 + 4096)) ]] || fail "vrdmad has grown from $kib to $(resident) KiB"
[[ $(find "$R/netns" -mindepth 1 | wc -l) -eq 0 ]] || fail "left in the run directory: $(ls -R "$R/netns")"
