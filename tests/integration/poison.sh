#!/bin/bash
# poison.sh WORKER FLOW: a request that crashes each worker that executes it ends its own session and nothing else,
# until it has crashed too many.
#
#   +-----------+           +-----------+
#   | ra -- eth0|           |eth0 -- rb |   of tenant red
#   | ba -- eth0|===========|eth0 -- bb |   of tenant blue
#   +-----------+           +-----------+
#
# WORKER is vrdmad-worker-poisoned (poison.cc). Beside a flow, red has programs that write 48,879 bytes, the poison.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/flows.sh"
setup
WORKERS_END=1  # because they crash
cp "$2" "$T/lib/flow"
other_worker "$1"
start_daemon
red_and_blue

crashes=' the worker of tenant/red crashes: Segmentation fault$'
poison=48879  # bytes

begin_flow red ra rb 18520
begin_flow blue ba bb 18521
flows_go_on "before the poison"
blue=$(worker_of blue-a)

say "a request crashes two workers, and its session ends"
red_writes 1 18522 $poison
wait_until 20 has_logged 1 '^.* warning session [0-9]+ of tenant/red ends: its worker crashed twice while it served this session$' ||
  fail "no session ends"
has_logged 2 "$crashes" || fail "the worker of red crashed $(logged "$crashes") times"
flows_go_on "after two crashes"
has_logged 1 ' session [0-9]+ of tenant/red ends: ' || fail "another session ends with it"
reap writer1 30
[[ $REAPED -ne 0 ]] || fail "the poison was written"
[[ $(worker_of blue-a) == "$blue" ]] || fail "the worker of blue is another one"

say "the third crash within a minute ends the sessions of the tenant, and says so once"
red_writes 2 18523 $poison
wait_until 20 has_logged 1 '^.* warning all sessions of tenant/red end: its worker crashed three times within a minute$' ||
  fail "the sessions do not end"
has_logged 3 "$crashes" || fail "the worker of red crashed $(logged "$crashes") times"
only_red_failed target1 target2 writer2 red-a red-b
has_logged 3 "$crashes" || fail "the worker of red crashed $(logged "$crashes") times"
end_flows "after all"
has_logged 0 'tenant/blue (crashes|is lost|ends?)' || fail "blue is harmed"
