#!/bin/bash
# worker_pause.sh FLOW: the workers of a tenant end again and again, so that the next one starts after a pause. Eight pairs of
# programs come back to it meanwhile, and go on.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/flows.sh"
setup
need_worker_processes
WORKERS_END=1  # because they are killed
cp "$1" "$T/lib/flow"
start_daemon
netns_add a b
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
vdev_create ra a eth0 --tenant red
vdev_create rb b eth0 --tenant red
for ((pair = 0; pair < 8; ++pair)); do begin_flow "red$pair" ra rb $((18520 + pair)); done
flows_go_on "before the first worker is killed"

# There is one worker, since there is one tenant. It may have taken over the sessions or not.
has_worker() { worker=$(workers) && [[ $worker == +([0-9]) ]]; }
pauses='error tenant/red: its workers end again and again: the next starts in a moment$'
for number in 1 2; do
  say "pause $number"
  before=$(logged "$pauses")
  for ((kills = 0; kills < 40 && $(logged "$pauses") == before; ++kills)); do
    wait_until 10 has_worker || fail "there is no worker"
    kill -KILL "$worker"
    wait_until 10 ended "$worker" || fail "the worker goes on"
  done
  [[ $(logged "$pauses") -gt $before ]] || fail "$kills workers were killed, and the next one comes at once"
  flows_go_on "after pause $number"
done
has_logged 0 " warning " || fail "sessions end"
end_flows "in the end"
stop_daemon
