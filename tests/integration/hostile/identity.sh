#!/bin/bash
# identity.sh PROGRAM: no process can pose as another: see identity.cc.
. "$(dirname "$0")/../lib.sh"
setup
program=$1
start_daemon
netns_add a
loose a eth0
ip_in a address add 10.0.0.1/24 dev eth0
vdev_create va a eth0 --tenant red
socket=$(socket_of va)
cp "$program" "$T/identity"
cp "$program" "$T/set_id"
chmod 4755 "$T/set_id"
findmnt -no OPTIONS -T "$T" | grep -qw nosuid && skip "$T does not allow set-user-id programs"

say "attacks on who a process is"
LIMIT=120 on a root "$T/identity" "$socket" "$T/set_id" || fail "a process is taken for another one"

say "a process that becomes another one before it is accepted"
kill -STOP "$DAEMON"
LIMIT=60 on a root "$T/identity" "$socket" "$T/set_id" "$DAEMON" || { kill -CONT "$DAEMON"; fail "it is taken for the other one"; }

say "the daemon says why, in one sentence"
grep -q "refused a program: process [0-9]*: it gained ids or capabilities by exec" "$T/vrdmad.log" ||
  grep -q "refused a program: process [0-9]*: its real, effective" "$T/vrdmad.log" || fail "no reason in the log"
refused=$(ctl stats va | awk '/sessions_unproven/ { sum += $NF } END { print sum + 0 }')
[[ $refused -ge 10 ]] || { ctl stats va; fail "sessions_unproven is $refused"; }
