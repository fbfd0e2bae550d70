#!/bin/bash
# half_told.sh HALF_TOLD: a daemon dies when it has taken a program's request for an event and not told of the completion,
# which the program polls. The program gets its event from the next one: otherwise it would wait for all that follow.
. "$(dirname "$0")/lib.sh"
setup
cp "$1" "$T/lib/half_told"
start_daemon
netns_add a
ip_in a link add eth0 type veth peer name eth1
ip_in a link set eth0 up
vdev_create va a eth0
spawn program a nobody "$T/lib/half_told" va
waits() { ended "${PID[program]}" || grep -q waits "$T/program.log"; }
wait_until 10 waits && ! ended "${PID[program]}" || fail "the program does not wait"
kill_daemon
start_daemon
reap program 20
[[ $REAPED -eq 0 ]] || fail "the program ends with status $REAPED: $(<"$T/program.log")"
stop_daemon
