#!/bin/bash
# fair.sh turns|groups|reach|cpu PROGRAM: one tenant's load on the daemon does not starve another.
# Both have their vdevice on one worker; red attacks, blue is the neighbour.
#
# The test compares how much was done for each, or by blue with and without the attack, never times.
. "$(dirname "$0")/../lib.sh"
setup
attack=$1
program=$2
start_daemon --isolation none --workers 1 --metrics "unix:$T/metrics.sock"
two_vdevices mediated
cp "$program" "$T/fair"

cat >"$T/watch.py" <<'END'
# watch.py METRICS PID,... SECONDS FAMILY[LABEL=VALUE]...: growth of each family of va and vb,
# processor time of the worker and the reach threads as the kernel counts it, the time in which they waited for a
# processor, and the elapsed time, all in microseconds.
import re, socket, sys, time, pathlib
def families():
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(sys.argv[1])
        end.sendall(b"GET /metrics HTTP/1.1\r\nHost: vrdma\r\nConnection: close\r\n\r\n")
        text = b"".join(iter(lambda: end.recv(65536), b"")).decode()
    values = []
    for wanted in sys.argv[4:]:
        family, label, value = (re.split(r"[\[=\]]", wanted) + ["", ""])[:3]
        for vdevice in ("va", "vb"):
            rows = [line for line in text.splitlines() if line.startswith(f"vrdma_{family}_total{{")
                    and f'vdevice="{vdevice}"' in line and (not label or f'{label}="{value}"' in line)]
            unit = 1_000_000 if family.endswith("_seconds") else 1
            values.append(round(float(rows[0].split()[-1]) * unit) if rows else 0)  # no limit: no series
    return values
def threads():  # each with its times until now
    used = {}
    for pid in sys.argv[2].split(","):
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            try:
                name, times = (task.joinpath(file).read_text() for file in ("comm", "schedstat"))
            except OSError:
                continue  # it has ended
            if name.strip() in ("worker", "vrdmad-worker", "reach"):
                used[task] = [int(time) // 1000 for time in times.split()[:2]]  # stat has ticks, which miss short turns
    return used
def look():
    began = time.monotonic_ns()
    values = families()
    return values + [(began + time.monotonic_ns()) // 2000]
before, first = look(), threads()
last = dict(first)
end = time.monotonic() + float(sys.argv[3])
while (left := end - time.monotonic()) > 0:  # what an ended thread has used is gone
    time.sleep(min(left, 0.1))
    last.update(threads())
*values, elapsed = (now - then for now, then in zip(look(), before))
last.update(threads())
print(*values, *(sum(times[i] for times in last.values()) - sum(times[i] for times in first.values()) for i in (0, 1)), elapsed)
END
watch() { timeout 60 python3 "$T/watch.py" "$T/metrics.sock" "$(paste -sd, <(echo "$DAEMON"; workers))" "$@"; } # SECONDS FAMILY...
begins() { ended "${PID[$1]}" && fail "$1 ended: $(cat "$T/$1.log")"; grep -q '^begins$' "$T/$1.log"; }
# begin NAME a|b ARGUMENTS...: starts a program on va or vb and waits until it runs.
begin() {
  local socket
  socket=$(socket_of "v$2")
  spawn "$1" "$2" nobody "$T/fair" "$3" "$socket" "${@:4}"
  wait_until 60 begins "$1" || fail "$1 does not begin"
}
end() { # NAME
  kill -9 "${PID[$1]}"
  reap "$1" 5
}
pings() { # how many of blue's small WRITEs are done in 4 seconds
  begin pings b pings 4
  reap pings 60
  [[ $REAPED -eq 0 ]] || fail "the neighbour's WRITEs: $(cat "$T/pings.log")"
  PINGS=$(tail -n 1 "$T/pings.log")
}
# measure SECONDS: RED and BLUE, the microseconds of processor time that vrdmad counts for each;
# their bytes written; how often red had to wait; ALL, the time of its threads; DELAY, in which they waited for a
# processor; TIME, the elapsed time.
measure() {
  read -r RED BLUE RED_BYTES BLUE_BYTES WAITS _ ALL DELAY TIME < <(watch "$1" cpu_seconds \
    'work_bytes[transport=connected]' 'quota_refused[kind=cpu]')
  echo "   red $((RED / 1000)) ms, blue $((BLUE / 1000)) ms of its threads' $((ALL / 1000)) ms in $((TIME / 1000)) ms, in which they waited for $((DELAY / 1000)) ms"
}
# uses PERCENT: red uses the processor time that this limit allows. Looks again if its threads could not, because other
# programs had the processors.
uses() {
  local least
  for _ in {1..5}; do
    measure 5
    least=$((TIME * $1 * 8 / 1000))
    [[ $RED -lt $least && $((RED + DELAY)) -ge $least ]] || break
  done
  [[ $RED -ge $least && $RED -le $((TIME * $1 * 12 / 1000)) ]] || fail "it is not $1% of $TIME us"
}
# The counted time is the time that the kernel counts for the daemon, except what no tenant causes.
is_honest() {
  [[ $((RED + BLUE)) -ge $((ALL * ${1:-70} / 100)) && $((RED + BLUE)) -le $((ALL * 110 / 100 + 50000)) ]] ||
    fail "$((RED + BLUE)) us were counted, of $ALL us"
}
# equal WHAT RED BLUE: blue has at least a third of the sum.
equal() {
  [[ $2 -gt 0 && $3 -gt $(($2 / 2)) ]] || fail "$1: red has $2, blue $3"
}
# undisturbed ALONE BESIDE FACTOR: the neighbour did at least 1/FACTOR of what it does alone. It
# shares two processors with the attacker, so it does less; without fairness it did a thousandth.
undisturbed() {
  echo "   blue's WRITEs: alone $1, beside it $2"
  [[ $(($2 * $3)) -ge $1 ]] || fail "the neighbour did $1 WRITEs alone and $2 beside the attack"
}

case $attack in
  turns)
    pings
    alone=$PINGS
    begin attacker a writes 256 120
    pings
    undisturbed "$alone" "$PINGS" 40
    say "256 queue pairs of WRITEs of 1 MiB against one"
    begin neighbour b writes 1 120
    measure 4
    is_honest
    equal "bytes written" "$RED_BYTES" "$BLUE_BYTES"
    equal "processor time" "$RED" "$BLUE"
    ;;
  groups)
    pings
    alone=$PINGS
    begin attacker a groups 300 120
    pings
    undisturbed "$alone" "$PINGS" 40
    say "a group of 300 queue pairs against one of 30"
    begin neighbour b groups 30 120
    measure 4
    is_honest
    equal "processor time" "$RED" "$BLUE"
    end attacker
    say "with a limit of bandwidth, which counts each copy"
    ctl quota set va bandwidth=8m
    began=${EPOCHREALTIME/./}
    begin attacker a groups 300 4
    reap attacker 60
    received=$(tail -n 1 "$T/attacker.log")
    most=$((8388608 * (${EPOCHREALTIME/./} - began) / 1000000 + 4000000))
    echo "   received: $received bytes, may be: $most"
    [[ $REAPED -eq 0 && $received -gt 0 && $received -le $most ]] || fail "the copies exceed the limit"
    ;;
  reach)
    pings
    alone=$PINGS
    threads=$(ls "/proc/$DAEMON/task" | wc -l)
    begin attacker a reach 32 120
    pings
    undisturbed "$alone" "$PINGS" 100
    measure 3
    is_honest
    [[ $(ls "/proc/$DAEMON/task" | wc -l) -le $((threads + 20)) ]] || fail "the attack makes threads without bound"
    say "messages in hand keep to a limit"
    ctl quota set va worker_memory=1m
    sleep 1
    most=0
    for _ in {1..20}; do
      [[ $(ctl quota show va -o json | tr -d ' \n') =~ \"kind\":\"worker_memory\",\"used\":([0-9]+), ]] ||
        fail "quota show says: $(ctl quota show va)"
      held=${BASH_REMATCH[1]}
      [[ $held -le $((1048576 + 262144)) ]] || fail "$held bytes are held"
      [[ $held -le $most ]] || most=$held
    done
    [[ $most -gt 0 ]] || fail "nothing was ever held"
    [[ $(ctl stats va | awk '/worker_memory/ && /refused/ { print $NF }') -gt 0 ]] ||
      { ctl stats va; fail "nobody is counted who waited"; }
    ctl quota set va worker_memory=64m
    say "threads that reach memory keep to the limit too"
    ctl quota set va cpu=20
    sleep 1
    uses 20
    pings
    undisturbed "$alone" "$PINGS" 20
    ;;
  cpu)
    ctl quota set va cpu=10
    shows_use() { [[ $(ctl quota show va -o json | tr -d ' \n') =~ \"kind\":\"cpu\",\"used\":(8|9|10|11|12), ]]; }
    for work in "writes 16" "requests 16" "reach 8" "groups 30"; do
      say "cpu=10 against $work"
      # shellcheck disable=SC2086  # words
      begin attacker a $work 120
      sleep 1
      uses 10
      is_honest 40
      wait_until 10 shows_use || fail "quota show says: $(ctl quota show va)"
      end attacker
    done
    say "a doorbell that rings without end is not heard"
    begin attacker a rings 16 120
    sleep 1
    measure 5
    [[ $ALL -le $((TIME * 40 / 100)) ]] || fail "its threads used $ALL us of $TIME us"
    end attacker
    say "a tenant's ceiling, without a limit of the vdevice"
    ctl quota set va cpu=max
    ctl tenant set red --ceiling cpu=30
    begin attacker a writes 16 120
    sleep 1
    uses 30
    [[ $WAITS -gt 0 ]] || fail "nobody is counted who waited"
    say "and when the limits end, so does the waiting"
    ctl tenant set red --ceiling cpu=max
    sleep 1
    measure 2
    [[ $WAITS -eq 0 && $RED -gt 0 ]] || fail "it still waits"
    say "direct links need none of it"
    [[ $(ctl vdev show va) != *"because it is limited"* ]] || fail "a limit of cpu makes links mediated"
    if ctl quota set va cpu=0 2>"$T/refused"; then fail "a limit of nothing is taken"; fi
    grep -q 'quota cpu: 0 would block everything' "$T/refused" || fail "it says: $(cat "$T/refused")"
    ;;
  *) fail "there is no attack '$attack'" ;;
esac
for name in "${!PID[@]}"; do end "$name"; done
