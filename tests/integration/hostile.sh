#!/bin/bash
# hostile.sh root|nobody PROGRAM [SEED [ATTACK...]]: a tenant violates every protocol and disturbs
# no other tenant. Without arguments, VRDMA_ATTACKS names the attacks to run.
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
# shellcheck disable=SC2086
[[ $# -gt 0 || -z ${VRDMA_ATTACKS:-} ]] || set -- 1 $VRDMA_ATTACKS
start_daemon
two_vdevices mediated
netns_add c
join c eth0 10.0.1.3/24 a eth1 10.0.1.1/24
vdev_create vc c eth0 --tenant evil --fabric shared --allow raw-packet
socket=$(socket_of vc)
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

attack() { LIMIT=280 on c "$user" env -u LD_PRELOAD "$T/hostile" "$socket" "$@"; }
counter() { ctl vdev show vc -o json | tr -d ' \n' | grep -oE "\"(name|counter)\":\"$1\"[^}]*" || true; }
before=$(holdings)
attack "$@" | tee "$T/attack.log" || fail "an attack had an effect"
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
