#!/bin/bash
# share.sh: two tenants of one fabric have one worker. Who opens as many sessions as it can leaves descriptors of the worker
# for the other.
. "$(dirname "$0")/../lib.sh"
setup
need_worker_processes
ulimit -n 1200
start_daemon
two_vdevices mediated
taken() { grep -lsx 'opened' "$T"/red*.log | wc -l; }
decided() { [[ $(cat "$T"/red*.log 2>/dev/null | grep -c -xE 'opened|refused') -eq $1 ]]; }
cat >"$T/red.sh" <<"END"
# A server that waits for its client, and has a session meanwhile.
ibv_rc_pingpong -d va -p "$1" >/dev/null 2>"$T/said.$1" &
while kill -0 $! 2>/dev/null && ! ss -Htln "sport = :$1" | grep -q .; do sleep 0.1; done
if kill -0 $! 2>/dev/null; then echo opened; else echo refused; fi
wait
END
say "red opens as many sessions as it gets"
ENVIRONMENT+=(T="$T")
for ((i = 0; i < 110; ++i)); do spawn "red$i" a root bash "$T/red.sh" $((20000 + i)); done
wait_until 60 decided 110 || fail "of 110 programs $(cat "$T"/red*.log | sort | uniq -c | xargs) have ended or wait"
say "it has $(taken)"
[[ $(taken) -ge 20 ]] || fail "red has $(taken) sessions, though nobody else had any: $(cat "$T"/said.* | sort | uniq -c)"
[[ $(taken) -lt 60 ]] || fail "red has $(taken) sessions of a worker with room for about 70"
say "blue opens some"
for ((i = 0; i < 5; ++i)); do
  on b root ibv_devinfo -d vb >"$T/blue.log" 2>&1 || fail "blue cannot open its vdevice: $(<"$T/blue.log")"
done
kill_all_in "$(ns a)"
for ((i = 0; i < 110; ++i)); do
  wait "${PID[red$i]}" 2>/dev/null || true
  unset "PID[red$i]"
done
