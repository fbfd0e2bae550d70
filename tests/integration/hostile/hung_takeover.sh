#!/bin/bash
# hung_takeover.sh PROGRAM FLOW daemon|worker: a process that cannot be inspected while a daemon, or
# a worker, takes sessions over delays the others of its namespace and their peers, and harms none.
# When it can be inspected again, they are served. Programs that have nothing to do with it do not
# notice.
#
#     netns a                 netns b            netns c
#   +--------------------+  +--------------+  +-----------+
#   | va: red-a, pink-a  |==| vb: red-b,   |  | vc:       |   FLOW: numbered messages, each of
#   |     PROGRAM, hangs |  |  pink-b,     |  |           |   which must arrive once
#   |                    |  |  green-b     |==|   green-a |
#   +--------------------+  +--------------+  +-----------+
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../flows.sh"
setup
need_worker_processes
what=$3
[[ $what == daemon ]] || WORKERS_END=1  # because they are killed
cp "$1" "$T/hangs"
cp "$2" "$T/lib/flow"
start_daemon --daemon-grace 60
two_vdevices mediated
netns_add c
join c eth0 10.0.1.3/24 b eth1 10.0.1.2/24
vdev_create vc c eth0 --tenant green --fabric shared --addresses 0.0.0.0/0,::/0

broker=$(helper broker)
# Not by pgrep(1), which looks into all processes, also those that hang.
kill_workers() { cat /proc/"$broker"/task/*/children | xargs kill -9; }
hung=({1..12})
holds() { grep -qE '^(held|nothing)$' "$T/hung-$1.log"; }
begin_flow red va vb 18520
begin_flow pink va vb 18522
begin_flow_end green-a c vc 10.0.1.3 18521
wait_until 20 listens green-a 18521 || fail "green-a does not listen"
begin_flow_end green-b b vb 10.0.0.2 18521 10.0.1.3
all=("${FLOWS[@]}")
flows_go_on "before the takeover"
# Sessions that worked last are taken over first, so red and pink rest while the others open theirs.
resting=("${PID[red-a]}" "${PID[red-b]}" "${PID[pink-a]}" "${PID[pink-b]}")
kill -STOP "${resting[@]}"
sleep 0.5
for i in "${hung[@]}"; do spawn "hung-$i" a nobody "$T/hangs" exec "$(socket_of va)" 120 0; done
for i in "${hung[@]}"; do wait_until 90 holds "$i" || fail "the attack does not get ready: $(<"$T/hung-$i.log")"; done
if grep -q '^nothing$' "$T/hung-1.log"; then skip "there is no FUSE here"; fi

say "what has to do with them waits, and the others go on"
if [[ $what == daemon ]]; then
  kill_daemon
  start_daemon --daemon-grace 60
else
  kill_workers
fi
waits() { grep -q "the session of process ${PID[$1]} is not taken over yet" "$T/vrdmad.log"; }
for name in red-a pink-a; do wait_until 5 waits $name || fail "$name is found before those that hang"; done
kill -CONT "${resting[@]}"
FLOWS=(green-a green-b)
flows_go_on "while others hang"
FLOWS=(red-a red-b pink-a pink-b)
wait_until 10 stays 0.5 flow_counts || fail "programs go on that cannot be inspected"  # they count what had come before
before=$(flow_counts)
sleep 1
[[ $(flow_counts) == "$before" ]] || fail "programs go on that cannot be inspected: $(flow_counts), before: $before"

say "they go on when they can be inspected again"
for i in "${hung[@]}"; do
  # shellcheck disable=SC2046
  kill -9 "${PID[hung-$i]}" $(cat "/proc/${PID[hung-$i]}/task/${PID[hung-$i]}/children")
  unset "PID[hung-$i]"
done
begun=${EPOCHREALTIME/./}
FLOWS=("${all[@]}")
flows_go_on "when the others have ended"
say "after $(((${EPOCHREALTIME/./} - begun) / 1000)) ms"
end_flows "in the end"
wait_until 20 no_session_files || fail "files of sessions are left"
given_up=$(grep -c 'the session of process [0-9]* cannot be taken over' "$T/vrdmad.log" || true)
[[ $given_up -eq ${#hung[@]} ]] || fail "$given_up lines tell of sessions that are given up, not ${#hung[@]}"
