#!/bin/bash
# checkpoint_cm_moves.sh FLOW EVENTS: programs that use rdma_cm are dumped on one host and restored on another one, with their
# connections, listeners and unread events; their peers on a third host notice a pause only. Then back; then after the end
# of their vdevice, and of vrdmad. FLOW checks each message, and that a disconnect comes in order.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/criu.sh"
setup
need_worker_processes
need_criu
cp "$1" "$T/lib/flow"
cp "$2" "$T/lib/events"
. "$(dirname "$0")/moves.sh"

declare -A AT=()  # where a program is, by name
ADDRESS=([1]=10.0.0.1 [3]=10.0.0.2)
# program NAME SPACE COMMAND...: on the host of that namespace.
program() {
  local number=${HOST_OF[$2]:-3}
  host "$number"
  [[ $number -eq 3 ]] || go_to "$2"
  ENVIRONMENT+=(VRDMA_RUN_DIR="$([[ $number -eq 3 ]] && echo "$R" || echo "$T/run")")
  AT[$1]=$2
  : >"$T/$1.log"  # what an earlier one of that name has said
  spawn "$1" "$2" root setsid "${@:3}"
}
has_said() { grep -qx "$2" "$T/$1.log"; }
said_or_ended() { ended "${PID[$1]}" || has_said "$1" "$2"; }
awaits_word() { # NAME WORD
  wait_until 60 said_or_ended "$1" "$2" || fail "$1 does not say $2: $(<"$T/$1.log")"
  has_said "$1" "$2" || lost "$1"
}
lost() { # NAME: it has ended, and should not have
  local status=0
  wait "${PID[$1]}" 2>/dev/null || status=$?
  fail "$1 has ended with status $status: $(<"$T/$1.log")"
}
begin_server() { # NAME SPACE [ADDRESS]
  local address=10.0.0.1
  [[ $2 != b ]] || address=10.0.0.2
  head -c 24 /dev/zero >"$T/$1.progress"
  program "$1" "$2" "$T/lib/flow" server "${3:-$address}" "$PORT" "$T/$1.progress"
  awaits_word "$1" listening
}
begin_client() { # NAME SPACE
  local address=10.0.0.2
  [[ $2 != b ]] || address=10.0.0.1
  head -c 24 /dev/zero >"$T/$1.progress"
  program "$1" "$2" "$T/lib/flow" client $address "$PORT" "$T/$1.progress"
  awaits_word "$1" connected
}
# flows NAME...: each of them sends and receives 300 more messages.
flows() {
  local name before
  for name in "$@"; do
    read -ra before <<<"$(counted "$name")"
    wait_until 60 has_done "$name" $((before[0] + 300)) $((before[1] + 300)) ||
      fail "$name does not go on: $(counted "$name") after ${before[*]}; $(<"$T/$name.log"); $(state_of_all)"
  done
}
state_of_all() {
  local number
  for number in 1 2 3; do
    host $number
    echo "--- host $number"
    ctl conn list || true
    ctl qp list || true
    ctl events || true
  done 2>&1
}
# moves NAME SPACE: it goes there, and what it had where it was is forgotten.
moves() {
  local from=${AT[$1]}
  host "${HOST_OF[$from]}"
  take "$1" "$from"
  go_to "$2"
  bring "$1" "$2"
  host "${HOST_OF[$from]}"
  ctl checkpoint abandon "${PID[$1]}"
  AT[$1]=$2
  host "${HOST_OF[$2]}"
}
has_ended_well() { # NAME: it has, with a sum
  wait_until 60 ended "${PID[$1]}" || fail "$1 does not end: $(<"$T/$1.log"); $(state_of_all)"
  ! grep FAILED "$T/$1.log" || fail "$1 has failed: $(<"$T/$1.log")"
  wait "${PID[$1]}" 2>/dev/null || true
  unset "PID[$1]"
}
sums() { grep -cE '^[0-9]+ sent, [0-9]+ received$' "$T/$1.log" || true; }
has_sums() { ended "${PID[$1]}" || [[ $(sums "$1") -ge $2 ]]; }
disconnected() { # SERVER COUNT: so many of its connections have ended
  wait_until 60 has_sums "$1" "$2" || fail "$1 learns of no disconnect: $(<"$T/$1.log"); $(state_of_all)"
  ! ended "${PID[$1]}" || fail "$1 has ended: $(<"$T/$1.log")"
}
connections() { ctl conn list | grep -cE " $1( |\$)" || true; }
has_connections() { [[ $(connections "$1") -ge $2 ]]; }
awaits_state() { wait_until 60 has_connections "$1" 1 || fail "no connection is $1: $(state_of_all)"; }

begin_server server a
begin_client client b
flows server client
say "a server goes to another host, back, and there again, while its client sends and receives"
for to in c a c; do
  moves server $to
  flows server client
  [[ $(connections ESTABLISHED) -eq 1 && $(connections LISTEN) -eq 1 ]] || fail "$(state_of_all)"
done
say "its client disconnects, and another one connects, where it is now; then it disconnects itself"
kill "${PID[client]}"
has_ended_well client
disconnected server 1
begin_client client b
flows server client
moves server a
flows server client
kill "${PID[server]}"
has_ended_well server
has_ended_well client

say "a client goes to another host, and disconnects there"
begin_server server b
begin_client client a
flows server client
moves client c
flows server client
kill "${PID[client]}"
has_ended_well client
disconnected server 1
say "a client goes there, and its server disconnects"
begin_client client a
moves client c
flows server client
kill "${PID[server]}"
has_ended_well server
has_ended_well client

say "a listener at all addresses, which has no device open, goes to another host and accepts there"
begin_server any a 0.0.0.0
moves any c
begin_client client b
flows any client
kill "${PID[client]}"
has_ended_well client
disconnected any 1
kill "${PID[any]}"
has_ended_well any

say "connections that are half made, events that were not read, and a disconnect go with it"
rm -f "$T"/go-*
program events-a a "$T/lib/events" server 10.0.0.1 "$PORT" "$T/go-a"
awaits_word events-a listening
program events-b b "$T/lib/events" client 10.0.0.1 "$PORT" "$T/go-b"
host 1
awaits_state REQ_RECEIVED
moves events-a c
touch "$T/go-a.1"
awaits_word events-b ESTABLISHED
moves events-a a  # it has not read ESTABLISHED
touch "$T/go-a.2"
awaits_word events-a ESTABLISHED
touch "$T/go-b.1"
awaits_state DREQ_RECEIVED
moves events-a c
touch "$T/go-a.3"
awaits_word events-b DISCONNECTED
touch "$T/go-a.4"
is_over() { ! has_connections TIMEWAIT 1; }
wait_until 60 is_over || fail "it stays in TIMEWAIT: $(state_of_all)"
awaits_word events-a 'no more'
for end in a b; do has_ended_well events-$end; done
[[ $(xargs <"$T/events-a.log") == 'listening CONNECT_REQUEST ESTABLISHED DISCONNECTED TIMEWAIT_EXIT no more' ]] || fail "$(<"$T/events-a.log")"

say "a client whose request was not answered goes there"
rm -f "$T"/go-*
program events-b b "$T/lib/events" server 10.0.0.2 "$PORT" "$T/go-b"
awaits_word events-b listening
program events-a a "$T/lib/events" client 10.0.0.2 "$PORT" "$T/go-a"
host 3
awaits_state REQ_RECEIVED
moves events-a c
touch "$T/go-b.1"
awaits_word events-a ESTABLISHED
touch "$T/go-b.2" "$T/go-b.3" "$T/go-a.1"
awaits_word events-a DISCONNECTED
has_ended_well events-a
kill -9 "${PID[events-b]}"
reap events-b 10

say "its vdevice is deleted and created meanwhile, and its vrdmad is killed"
begin_server server a
begin_client client b
flows server client
host 1
take server a
ctl vdev delete va
vdev_at 1 va a
bring server a
flows server client
host 1
take server a
WORKERS_END=1
kill_daemon
begin_host 1
bring server a
flows server client

say "where its port is taken, or its address is missing, it is refused, and the image stays good"
host 1
take server a
begin_server other c
host 2
refused_in c server "an rdma_cm id of the program cannot have its port: port $PORT at ::ffff:10.0.0.1 is bound"
kill "${PID[other]}"
has_ended_well other
go_to a
bring server a
flows server client
kill "${PID[client]}"
has_ended_well client
disconnected server 1
take server a
host 3
refused_in b server 'vdevice .*/vb: an rdma_cm id of the program names GID ::ffff:10.0.0.1 by index'
host 1
bring server a
say "an image is restored once"
used_once server a
bring server a
begin_client client b
flows server client
kill "${PID[server]}"
has_ended_well server
has_ended_well client
for number in 1 2 3; do
  host $number
  ! ctl events | grep -w protocol || fail "a program on host $number has lost its session"
done
