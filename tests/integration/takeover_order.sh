#!/bin/bash
# takeover_order.sh GAPS: of many sessions, those that work are taken over first.
#
#     netns a
#   +-------------------+
#   | 40 programs       |   one writes to the memory of another; the others sleep
#   | va (mediated)     |
#   +-------------------+
. "$(dirname "$0")/lib.sh"
setup
need_worker_processes
WORKERS_END=1
cp "$1" "$T/lib/gaps"
start_daemon
netns_add a
loose a eth0
vdev_create va a eth0 --no-direct
spawn programs a nobody "$T/lib/gaps" 40
wait_until 40 grep -qs begun "$T/programs.log" || fail "the programs do not begin: $(<"$T/programs.log")"
writer=${PID[programs]} target=$(pgrep -o -P "${PID[programs]}")

taken_over() { grep -oP 'took over the session of process \K\d+' "$T/vrdmad.log" || true; }
# After what ends the worker. The order of the lines is that in which the worker adopts.
check_order() {
  wait_until 20 all_taken_over $((before + 40)) || fail "not all sessions are taken over"
  first=$(taken_over | tail -n +$((before + 1)) | head -n 8)
  grep -qx "$writer" <<<"$first" && grep -qx "$target" <<<"$first" ||
    fail "those that work ($writer, $target) are not among the first: $(xargs <<<"$first")"
  kill -USR1 "$writer"
  wait_until 10 written || fail "the writer does not go on: $(<"$T/programs.log")"
}
written() { [[ $(wc -l <"$T/programs.log") -gt $lines ]]; }

for killed in worker daemon; do
  say "the $killed is killed"
  sleep 0.5
  before=$(took_over) lines=$(wc -l <"$T/programs.log")
  if [[ $killed == worker ]]; then kill -KILL $(workers); else kill_daemon; start_daemon; fi
  check_order
done
kill -TERM "$writer"
reap programs 10
