#!/bin/bash
# while_it_waits.sh PROGRAM: while one thread's verb waits for the next daemon, direct links of
# other queue pairs continue, even if they share its completion queue.
. "$(dirname "$0")/lib.sh"
setup
program=$1
start_daemon
netns_add a
loose a eth0
ip_in a address add 10.0.0.1/24 dev eth0
vdev_create va a eth0 --tenant red
cp "$program" "$T/while_it_waits"

spawn program a nobody "$T/while_it_waits" va "$T/go"
is_ready() { grep -q ready "$T/program.log"; }
wait_until 20 is_ready || fail "it does not get ready"
kill_daemon
touch "$T/go"
has_written() { grep -q writes "$T/program.log" || ended "${PID[program]}"; }
wait_until 30 has_written || fail "a poll waits for what another thread asked the daemon"
start_daemon
reap program 30
[[ $REAPED -eq 0 ]] || fail "it ends with $REAPED: $(<"$T/program.log")"
