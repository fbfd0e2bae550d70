#!/bin/bash
# hostile.sh root|nobody PROGRAM [--vdevices N] [SEED [ATTACK...]]: a tenant violates every protocol and disturbs
# no other tenant. It does so from N vdevices at once, each attack from all of them. Without arguments, VRDMA_ATTACKS names
# the attacks to run.
#
#      netns c             netns a                 netns b
#   +-----------+       +---------------+       +---------------+
#   | vc (evil) |       | va (red) eth0 | ===== | eth0 vb (blue)|      all of one fabric, and so
#   +-----------+       +---------------+       +---------------+      on one worker
#     PROGRAM             ibv_rc_pingpong, in a loop
. "$(dirname "$0")/lib.sh"
setup
user=$1
program=$2
shift 2
vdevices=1 crowd=()
if [[ ${1:-} == --vdevices ]]; then
  vdevices=$2 crowd=(HOSTILE_CROWD=1)
  shift 2
fi
# shellcheck disable=SC2086
[[ $# -gt 0 || -z ${VRDMA_ATTACKS:-} ]] || set -- 1 $VRDMA_ATTACKS
start_daemon
two_vdevices mediated
netns_add c
join c eth0 10.0.1.3/24 a eth1 10.0.1.1/24
vdev_create vc c eth0 --tenant evil --fabric shared --allow raw-packet
socket=$(socket_of vc)
for ((i = 1; i < vdevices; ++i)); do
  netns_add "c$i"
  loose "c$i" eth0
  ip_in "c$i" address add "10.0.2.$i/24" dev eth0
  vdev_create "vc$i" "c$i" eth0 --tenant evil --fabric shared --allow raw-packet
done
cp "$program" "$T/hostile"

# A well-behaved pair that exchanges data again and again until the attacks are over.
(
  while [[ ! -e $T/over ]]; do
    ( pair root ibv_rc_pingpong -g GID -n 500 ) || { echo "disturbed" >"$T/disturbed"; exit; }
    echo . >>"$T/undisturbed"
    sleep 0.3
  done
) >"$T/pingpong.log" 2>&1 &
PID[pairs]=$!

# Another that connects by rdma_cm.
(
  while [[ ! -e $T/over ]]; do
    on a root ucmatose -b 10.0.0.1 -c 4 -C 10 -S 100 >"$T/listener.log" 2>&1 &
    wait_until 20 listening va || { echo "disturbed" >"$T/disturbed"; exit; }
    on b root ucmatose -s 10.0.0.1 -c 4 -C 10 -S 100 && wait $! || { echo "disturbed" >"$T/disturbed"; exit; }
    echo . >>"$T/connected"
    sleep 0.3
  done
) >"$T/ucmatose.log" 2>&1 &
PID[connecting]=$!

attack() { LIMIT=280 on c "$user" env -u LD_PRELOAD "${crowd[@]}" "$T/hostile" "$socket" "$@"; }
counter() { ctl vdev show vc -o json | tr -d ' \n' | grep -oE "\"(name|counter)\":\"$1\"[^}]*" || true; }
before=$(holdings)
for ((i = 1; i < vdevices; ++i)); do
  spawn "evil$i" "c$i" "$user" env -u LD_PRELOAD "${crowd[@]}" "$T/hostile" "$(socket_of "vc$i")" "$@"
done
attack "$@" | tee "$T/attack.log" || fail "an attack had an effect"
for ((i = 1; i < vdevices; ++i)); do
  reap "evil$i" 280
  [[ $REAPED -eq 0 ]] || fail "an attack from another vdevice had an effect: $(grep -E '^(!!|FAILED)' "$T/evil$i.log")"
done
[[ ! -e $T/disturbed ]] || { tail -n 20 "$T/pingpong.log"; fail "a well-behaved pair was disturbed"; }
touch "$T/over"
wait_until 30 ended "${PID[pairs]}" || fail "a well-behaved pair stands still"
wait_until 30 ended "${PID[connecting]}" || fail "well-behaved connections stand still"
unset "PID[pairs]" "PID[connecting]"
[[ -s $T/undisturbed ]] || fail "no well-behaved pair came to its end"
[[ -s $T/connected ]] || fail "no well-behaved connection came to its end"
say "undisturbed pairs: $(wc -l <"$T/undisturbed")"
ended "$DAEMON" && fail "vrdmad has ended"
if ! wait_until 45 holds_only "$before"; then
  echo "before: $before"
  echo "after: $(holdings)"
  fail "vrdmad holds more than before"
fi
