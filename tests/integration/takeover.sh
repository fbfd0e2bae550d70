#!/bin/bash
# takeover.sh MODE FLOW OBJECTS HOSTILE: programs continue when vrdmad is killed, stopped or
# replaced in the middle.
#
#     netns a                 netns b
#   +-----------+           +-----------+
#   | server    |   veth    |    client |     MODE direct: one tenant; mediated: two
#   | va -- eth0|===========|eth0 -- vb |
#   +-----------+           +-----------+
. "$(dirname "$0")/lib.sh"
mode=$1
setup
cp "$2" "$T/lib/flow"
cp "$3" "$T/lib/objects"
cp "$4" "$T/lib/hostile"
start_daemon
two_vdevices "$mode"

sessions() { ctl vdev list -o json | grep -c '"sessions": 1,' || true; }
has_sessions() { [[ $(sessions) -eq $1 ]]; }

# begin PROGRAM ARGUMENTS...: starts both sides and waits until they work.
begin() {
  local program=$1
  shift
  tcp_server a nobody "$program" -d va "${@/#GID/$INDEX_A}"
  spawn client b nobody "$program" -d vb "${@/#GID/$INDEX_B}" 10.0.0.1
  wait_until 10 has_sessions 2 || fail "$program: there are no sessions"
  sleep 0.5
}
# start_flow SECONDS HOW: the same with numbered messages.
start_flow() {
  tcp_server a nobody "$T/lib/flow" va "$INDEX_A" "$PORT" "$1" "$2"
  spawn client b nobody "$T/lib/flow" vb "$INDEX_B" "$PORT" "$1" "$2" 10.0.0.1
  wait_until 10 has_sessions 2 || fail "there are no sessions"
}
# both_succeed: both end, and found all data.
both_succeed() {
  for side in client server; do
    reap $side 20  # less than the grace, which must not be waited for
    [[ $REAPED -eq 0 ]] || fail "the $side ends with status $REAPED"
    no_sanitizer "$side" "$T/$side.log"
  done
  wait_until 5 has_sessions 0 || fail "sessions are left"
  no_session_files || fail "files of sessions are left"
}

# outlives_two PROGRAM ARGUMENTS...: outlives two daemons. 1: it ended by itself before that,
# successfully.
outlives_two() {
  local before round
  before=$(took_over)
  begin "$@"
  for round in 1 2; do
    kill_daemon
    sleep 0.2
    start_daemon
    wait_until 10 taken_over_or_ended $((before + 2 * round)) || fail "the sessions were not taken over"
  done
  both_succeed
  [[ $(took_over) -le $((before + 4)) ]] || fail "sessions were taken over twice"
  all_taken_over $((before + 4))
}
taken_over_or_ended() { all_taken_over "$1" || ended "${PID[client]}" || ended "${PID[server]}"; }

programs=(
  "ib_send_lat -F"
  "ib_read_bw -F"
  "ib_send_bw -F --use-srq -q 2"
)
# The verb makes no difference to the threads of a daemon that ThreadSanitizer watches.
[[ -n ${VRDMA_DAEMON:-} ]] || programs+=(
  "ib_write_bw -F"
  "ib_send_bw -F -b"
  "ib_atomic_lat -F -A FETCH_AND_ADD"
)
seconds=2
for words in "${programs[@]}"; do
  read -ra program <<<"$words"
  say "$words: killed twice"
  until outlives_two "${program[@]}" -D $seconds; do
    ((seconds *= 2))  # a busy machine starts daemons slowly
    [[ $seconds -le 16 ]] || fail "two daemons do not start within $((seconds / 2)) s"
  done
done

say "each message once, in order and whole; each completion once: killed, then stopped in order"
for how in poll events shared; do
  start_flow 2 $how
  for _ in 1 2 3; do
    sleep 0.2
    kill_daemon
    sleep 0.2
    start_daemon
  done
  stop_daemon
  start_daemon
  both_succeed
  say "$how: $(tail -n 1 "$T/client.log")"
done

say "a vdevice that is lost for a while keeps its sessions, and those of its fabric wait with it"
start_flow 3 events
sleep 0.2
before=$(took_over)
kill_daemon
hide_netns b
start_daemon
[[ $(ctl vdev show vb -o json) == *LOST* ]] || fail "vb is not lost"
sleep 1
has_sessions 0 || fail "a session is taken over before its peer can be"
{ ended "${PID[client]}" || ended "${PID[server]}"; } && fail "a program has ended: $(<"$T/client.log")"
show_netns b
both_are_taken_over() { [[ $(took_over) -eq $((before + 2)) ]]; }
wait_until 10 both_are_taken_over || fail "the sessions are not taken over"
both_succeed

say "one that stays lost loses its sessions after half of the grace, and no others"
kill_daemon
start_daemon --daemon-grace 8
start_flow 30 poll
spawn other a nobody "$T/lib/objects" va "$INDEX_A" 6
wait_until 10 has_sessions 1 || fail "va has not two sessions"
kill_daemon
hide_netns b
start_daemon --daemon-grace 8
for side in client server; do
  reap $side 15
  [[ $REAPED -ne 0 ]] || fail "the $side does not see that vb has gone"
done
reap other 20
[[ $REAPED -eq 0 ]] || fail "another program lost what it had: $(tail -n 3 "$T/other.log")"
show_netns b
is_back() { [[ $(ctl vdev show vb -o json) != *LOST* ]]; }
wait_until 35 is_back || fail "vb does not come back"
kill_daemon
start_daemon

say "in containers, which have the sockets mounted"
mkdir "$T/container" "$T/container/netns"
contained() { # ARGUMENTS OF flow...
  echo "mount --bind $R/netns $T/container/netns && VRDMA_RUN_DIR=$T/container exec $T/lib/flow $*"
}
tcp_server a root unshare -m sh -c "$(contained va "$INDEX_A" "$PORT" 2 events)"
spawn client b root unshare -m sh -c "$(contained vb "$INDEX_B" "$PORT" 2 events 10.0.0.1)"
wait_until 10 has_sessions 2 || fail "there are no sessions"
stop_daemon
start_daemon
kill_daemon
start_daemon
both_succeed

say "whatever was being made, changed or undone is so once: killed 12 times"
spawn server a nobody "$T/lib/objects" va "$INDEX_A" 6
spawn client b nobody "$T/lib/objects" vb "$INDEX_B" 6
wait_until 10 has_sessions 2 || fail "there are no sessions"
for _ in {1..12}; do
  sleep "0.$((RANDOM % 200 + 100))"
  kill_daemon
  start_daemon
done
both_succeed
say "$(tail -n 1 "$T/client.log")"

say "who deceives the next daemon loses a session at most, and only its own"
tricks=(honest repeated scribbled crowded doorbell memory events)
socket=$(socket_of va)
tcp_server a nobody "$T/lib/flow" va "$INDEX_A" "$PORT" 3 poll
spawn client b nobody "$T/lib/flow" vb "$INDEX_B" "$PORT" 3 poll 10.0.0.1
for trick in "${tricks[@]}"; do spawn "$trick" a nobody "$T/lib/hostile" "$socket" "$trick"; done
ready() { grep -qs ready "$T/$1.log"; }
for trick in "${tricks[@]}"; do wait_until 10 ready "$trick" || fail "$trick is not ready"; done
kill_daemon
start_daemon
for trick in "${tricks[@]}"; do
  reap "$trick" 20
  [[ $REAPED -eq 0 ]] || fail "$trick: status $REAPED"
done
both_succeed

say "who dies meanwhile is told of by the next daemon"
begin ib_write_bw -F -D 20
kill_daemon
kill -9 "${PID[server]}"
reap server 5
start_daemon
reap client 10
[[ $REAPED -ne 0 ]] || fail "the client does not see the death of the server"
wait_until 5 has_sessions 0 || fail "the dead session is there"

say "so is whose peer died in front of a daemon that had not told it yet"
begin ib_send_bw -F -D 30
kill -9 "${PID[client]}"
client_has_gone() { [[ $(sessions) -le 1 ]]; }  # the server may have been told already, and end too
wait_until 10 client_has_gone || fail "the death of the client is not noticed"
kill_daemon
reap client 5
start_daemon
reap server 15
[[ $REAPED -ne 0 ]] || fail "the server does not see the death of the client"
wait_until 5 has_sessions 0 || fail "the dead session is there"

say "a second daemon dies before the programs, stopped meanwhile, know of it: they give up"
kill_daemon
start_daemon --daemon-grace 2
start_flow 30 events
kill -STOP "${PID[server]}" "${PID[client]}"
kill_daemon
start_daemon --daemon-grace 2
wait_until 10 has_sessions 2 || fail "the sessions of stopped programs were not taken over"
kill_daemon
kill -CONT "${PID[server]}" "${PID[client]}"
both_ended() { ended "${PID[server]}" && ended "${PID[client]}"; }
if [[ $mode == mediated ]]; then
  wait_until 15 both_ended || fail "the programs wait without end"
  reap server 1
  reap client 1
  [[ $REAPED -ne 0 ]] || fail "the client ends well without a daemon"
else
  kill_programs server client
fi
start_daemon
wait_until 5 has_sessions 0 || fail "a session of nobody is there"

say "what cannot be taken over is said, and told to the program"
start_flow 30 poll
kill_daemon
for file in "$R"/state/*.session; do  # as if an older daemon had written it
  printf '\001' | dd of="$file" bs=1 seek=8 conv=notrunc status=none
done
start_daemon
grep -q 'cannot be taken over: its state is of another version' "$T/vrdmad.log" || fail "nothing is said"
has_sessions 0 || fail "there are sessions"
# A direct link continues.
if [[ $mode == mediated ]]; then
  one_ended() { ended "${PID[server]}" || ended "${PID[client]}"; }
  wait_until 10 one_ended || fail "both wait without end"
fi
kill -9 "${PID[server]}" "${PID[client]}" 2>/dev/null || true
