#!/bin/bash
# idle.sh: a daemon with 100 idle vdevices uses no processor time, and an idle worker has little memory of its own.
#
#     netns a                            a program sleeps on the events of v0 and of v1
#   +--------------------------------+
#   | v0 -- d0, v1 -- d1 ... v99     |
#   +--------------------------------+
. "$(dirname "$0")/lib.sh"
setup
# Also with a metrics endpoint that no client uses.
start_daemon --metrics "unix:$T/metrics.sock"
netns_add a
for i in {0..99}; do
  loose_commands "d$i"
  echo "address add 10.0.$i.1/32 dev d$i"
done | ip_in a -batch -
for i in {0..99}; do vdev_create "v$i" a "d$i" --tenant red; done
[[ $(on a root ibv_devices | sed 1,2d | wc -l) -eq 100 ]] || fail "there are not 100 devices"
for i in 0 1; do
  spawn "sleeper$i" a nobody ibv_asyncwatch -d "v$i"
done
sessions_open() { [[ $(ls "/proc/$DAEMON/fd" | wc -l) -gt 0 ]] && grep -q . "$T/sleeper1.log"; }
wait_until 5 sessions_open || true
# Counters that a program has read cost nothing afterwards.
ctl exec v0 -- sh -c 'cat /sys/class/infiniband/v*/ports/1/counters/port_xmit_data' >"$T/counters"
[[ $(wc -l <"$T/counters") -eq 100 ]] || fail "there are not counters of 100 devices"

processes=("$DAEMON" "$(helper broker)" "$(helper intake)" "$(helper stopper)")
cpu() { for pid in "${processes[@]}"; do cat "/proc/$pid/stat"; done | awk '{n += $14 + $15} END {print n}'; }
switches() {
  for pid in "${processes[@]}"; do cat "/proc/$pid"/task/*/status; done |
    awk '/^voluntary_ctxt_switches/ {n += $2} END {print n}'
}
rests() {
  local before
  before=$(switches)
  sleep 2
  [[ $(switches) -eq $before ]]
}
sleep 5  # gRPC, and whatever else has just been used, comes to rest
wait_until 30 rests || fail "an idle daemon does not come to rest"
cpu_before=$(cpu) switches_before=$(switches)
sleep 10
cpu_used=$(($(cpu) - cpu_before)) woken=$(($(switches) - switches_before))
say "in 10 s: $cpu_used ticks of CPU, woken $woken times"
[[ $cpu_used -eq 0 ]] || fail "an idle daemon uses CPU"
[[ $woken -eq 0 ]] || fail "an idle daemon wakes up"
ended "${PID[sleeper0]}" && fail "the sleeper ended by itself"
kill "${PID[@]}"
for i in 0 1; do reap "sleeper$i" 5; done

if [[ -x $(dirname "$VRDMAD")/vrdmad-worker ]]; then
  loose a d100
  vdev_create v100 a d100
  before=$(workers)
  on a nobody ibv_devinfo -d v100 >/dev/null || fail "v100 cannot be opened"
  worker=$(comm -13 <(sort <<<"$before") <(workers | sort))
  # Its pages of files are shared with other workers.
  own=$(awk '$1 == "Anonymous:" { print $2 }' "/proc/$worker/smaps_rollup")
  say "memory of an idle worker's own: $own KiB"
  [[ $own -le 256 ]] || fail "an idle worker has $own KiB of memory of its own, more than 256"
fi
