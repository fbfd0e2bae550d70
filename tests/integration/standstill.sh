#!/bin/bash
# standstill.sh PROGRAM: memory of programs with several threads is put in place while the daemon's
# stopper holds the other threads: no write is lost and no system call is disturbed. If the threads
# cannot be held, the memory is reached. A process killed in the middle leaves no thread stopped.
#
# /dev/userfaultfd would do the same; only vu has it here.
. "$(dirname "$0")/lib.sh"
setup
program=$1
seconds=$((${VRDMA_RACE_SECONDS:-8} / 2))
start_daemon
netns_add a
loose a eth0
loose a eth1
vdev_create va a eth0 --tenant red
vdev_create vu a eth1 --tenant red --allow userfaultfd
cp "$program" "$T/standstill"  # a build directory may be closed to other users

counter() { ctl stats "$1" | awk -v name="$2" '$(NF - 1) == name { print $NF }'; }
stopper() { pgrep -P "$DAEMON" | while read -r pid; do
  [[ $(<"/proc/$pid/comm") != vrdmad-stopper ]] || echo "$pid"; done; }
[[ -n $(stopper) ]] || fail "there is no stopper process"
# CAP_SYS_PTRACE, and CAP_DAC_READ_SEARCH or CAP_DAC_OVERRIDE.
grep -qE '^CapPrm:\s*000000000008000[24]$' "/proc/$(stopper)/status" ||
  fail "the stopper's capabilities: $(grep Cap "/proc/$(stopper)/status")"

reached() { ctl vdev show "$1" | grep -E "^ *reached "; }
say "what is not said to be impossible is put in place"
on a nobody "$T/standstill" falls va nothing || fail "it was not put in place: $(reached va)"

on a root unshare --pid --fork "$T/standstill" falls va nothing ||
  fail "it was not put in place in a pid namespace: $(reached va)"

say "no system call of the other threads is disturbed"
on a nobody "$T/standstill" calls va || fail "a system call was disturbed"

none_late() { grep -q ' 0 late,' "$T/race.out" || fail "a write was seen late: $(<"$T/race.out")"; }
say "no write is lost: 1 MiB, 64 MiB"
LIMIT=$((seconds + 60)) on a nobody "$T/standstill" race va "$seconds" 1048576 | tee "$T/race.out" || fail "a write was lost"
none_late
[[ $(awk '{ print $3 }' "$T/race.out") -gt 10 ]] || fail "hardly anything was put in place: $(<"$T/race.out")"
LIMIT=$((seconds + 60)) on a nobody "$T/standstill" race va "$seconds" 67108864 | tee "$T/race.out" || fail "a write was lost"
none_late
# On a slow machine a hold may end before its 16 MiB are copied.
late=$(counter va mr_reached_lost)
[[ $(awk '{ print $3 }' "$T/race.out") -gt 0 || $late -gt 0 ]] || fail "nothing was put in place: $(<"$T/race.out") $(reached va)"

say "small ranges in a row share holds, and no write of a thread that is made meanwhile is lost"
holds_of() { # COMMAND...: the number of holds that it takes
  local before
  before=$(counter va holds)
  "$@" >"$T/race.out" || fail "a write was lost: $(<"$T/race.out")"
  echo $(($(counter va holds) - before))
}
LIMIT=$((seconds + 60)) holds=$(holds_of on a nobody "$T/standstill" race va "$seconds" 8388608 32)
none_late
pieces=$((32 * $(awk '{ print $1 }' "$T/race.out")))
say "$holds holds for $pieces ranges: $(<"$T/race.out")"
[[ $holds -gt 0 && $holds -lt $pieces ]] || fail "$holds holds for $pieces ranges"

say "what cannot be held is reached, and its reason counted"
for how in traced busy_call waitall vfork; do
  reason=${how/waitall/busy_call}
  before=$(counter va "mr_reached_$reason")
  on a nobody "$T/standstill" falls va "$how" || fail "$how: the memory is in place"
  [[ $(counter va "mr_reached_$reason") -gt $before ]] ||
    fail "mr_reached_$reason is $(counter va "mr_reached_$reason"), before $before"
done
ctl vdev show va | grep -qE '^ *reached .*traced' || fail "vdev show says: $(ctl vdev show va)"

say "userfaultfd is for who was allowed it"
before=$(counter vu holds)
on a nobody "$T/standstill" race vu 1 1048576 | tee "$T/race.out" || fail "a write was lost"
none_late
if [[ -c /dev/userfaultfd ]]; then
  [[ $(counter vu holds) == "$before" ]] || fail "its threads were held"
fi

runs() { ! ended "${PID[race]}"; }
race() { # begins one, and names one of the threads that it wants held
  spawn race a nobody "$T/standstill" race va 3000 16777216
  wait_until 20 has_threads || fail "the program makes no threads: $(<"$T/race.log")"
  HELD=$(ls "/proc/${PID[race]}/task" | grep -vx "${PID[race]}" | head -n 1)
}
has_threads() { [[ $(ls "/proc/${PID[race]}/task" | wc -l) -gt 10 ]]; }
traced() {
  local key value
  while read -r key value; do
    [[ $key != TracerPid: || $value == 0 ]] || return 0
  done <"/proc/${PID[race]}/task/$HELD/status"
  return 1
}
# Returns during a hold. Forks nothing, so that the hold still lasts when the next command kills.
in_a_hold() {
  local end=$((SECONDS + 30)) i
  while ((SECONDS < end)); do
    runs || fail "the program ended: $(<"$T/race.log")"
    for ((i = 0; i < 1000; ++i)); do
      traced || continue
      for ((i = RANDOM % 4 * 100; i > 0; --i)); do :; done
      ! traced || return 0
    done
  done
  fail "in 30 s there was no hold"
}
stopped() { # of the program: threads that are stopped or traced
  cat "/proc/${PID[race]}"/task/*/status 2>/dev/null | grep -cE '^State:.[tT]|^TracerPid:.[1-9]'
}
all_run() { [[ $(stopped) -eq 0 ]]; }
threads_of() { ls "/proc/$1/task" | wc -l; }

say "a program that is killed in the middle of a hold is gone, and the stopper lets go of it"
victim=$(stopper)
for ((round = 1; round <= 2 * seconds; ++round)); do
  race
  in_a_hold
  kill -9 "${PID[race]}"
  reap race 5
  [[ $REAPED -eq 137 ]] || fail "round $round: the program ended with status $REAPED"
done
rests() { [[ $(threads_of "$victim") -eq 1 ]]; }
wait_until 5 rests || fail "the stopper has $(threads_of "$victim") threads and holds nobody"
on a nobody "$T/standstill" falls va nothing || fail "the next was not put in place: $(reached va)"

# If the stopper is killed, some writes may be seen late.
say "whoever else is killed in the middle of a hold leaves all running, and no write is lost"
race
for ((round = 1; round <= 2 * seconds; ++round)); do
  in_a_hold
  kill -STOP "${PID[race]}"  # the hold ends meanwhile, by its time
  sleep 0.3
  kill -CONT "${PID[race]}"
  victim=$(stopper)
  in_a_hold
  case $((round % 4)) in
    0) kill -9 "$victim" ;;  # reached from now on
    1) kill -9 "$DAEMON" ;;
    2) kill -9 "$victim" "$DAEMON" ;;
    3) kill -STOP "$DAEMON" ;;
  esac
  wait_until 5 all_run || fail "round $round: $(stopped) threads stand still"
  runs || fail "round $round: the program ended: $(<"$T/race.log")"
  kill -9 "$DAEMON" 2>/dev/null || true
  wait "$DAEMON" 2>/dev/null || true
  wait_until 5 ended "$victim" || fail "round $round: the stopper outlives the daemon"
  start_daemon
done
in_a_hold  # as before
kill "${PID[race]}"
reap race 30
cat "$T/race.log"
[[ $REAPED -eq 0 ]] || fail "a write was lost"
[[ $(awk '/rounds/ { print $3 }' "$T/race.log") -gt 0 ]] || fail "nothing was put in place"
