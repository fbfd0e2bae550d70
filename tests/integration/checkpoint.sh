#!/bin/bash
# checkpoint.sh host|direct|network FLOW EVENTS: programs with open vdevices are dumped by CRIU, killed and restored; their peers
# notice a pause only. All programs check each message, WRITE, READ and atomic that they exchange.
#
#     netns a                      netns b
#   +-----------------+          +-----------------+
#   | NAME-a  va eth0 |===veth===| eth0 vb  NAME-b |     host: a worker moves the bytes; direct: the
#   +-----------------+          +-----------------+     programs do; network: packets of RoCE v2
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/flows.sh"
. "$(dirname "$0")/criu.sh"
mode=$1
setup
need_worker_processes
for program in rping rstream; do
  command -v $program >/dev/null || skip "$program is not installed"
done
need_criu
cp "$2" "$T/lib/flow"
cp "$3" "$T/lib/events"
start_daemon
netns_add a b
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
criu_runs a
if [[ $mode == network ]]; then
  for end in a b; do
    vdev_create "v$end" $end eth0 --fabric $end
    ctl fabric set $end --reach network >/dev/null
  done
  ENVIRONMENT+=(FLOW_TIMEOUT=17)  # half a second, eight times: longer than a dump and a restore
else
  options=(--tenant red)
  [[ $mode == direct ]] || options+=(--no-direct)
  for end in a b; do vdev_create "v$end" $end eth0 "${options[@]}"; done
fi

# A pair of programs that have no socket of their own, which CRIU could not dump on its peer's behalf.
begin() { # NAME HOW
  mkfifo "$T/$1.a" "$T/$1.b"
  begin_end "$1-a" a 10.0.0.1 "$T/$1" "$2"
  begin_end "$1-b" b 10.0.0.2 "$T/$1" "$2" client
}
begin_end() { # NAME NAMESPACE ADDRESS PIPES HOW [client]
  head -c 24 /dev/zero >"$T/$1.progress"
  spawn "$1" "$2" root setsid "$T/lib/flow" "${VDEVICE:-v}$2" "$(gid_index "$2" "${VDEVICE:-v}$2" "$3")" "$4" "$T/$1.progress" "$5" "${@:6}"
}
dump() { dump_in "${1##*-}" "$@"; }  # NAME-SPACE [OPTION...]: false: it failed
dumped() { dumped_in "${1##*-}" "$@"; }
restore() { restore_in "${1##*-}"; }
restored() { restored_in "${1##*-}" "$1"; }
state() { ctl vdev list | awk -v name="$1" '$1 == name { print $2 }'; }
is_in() { [[ $(state "$1") == "$2" ]]; } # VDEVICE STATE
# again NAME: it is made anew of its image.
again() {
  dumped "$1"
  killed "$1"
  restored "$1"
}

# both_away NAME [END OTHER]: both are dumped, END first, and restored in the other order.
both_away() {
  local end=${2:-a} other=${3:-b}
  dumped "$1-$end"
  killed "$1-$end"
  mv "$T/image" "$T/image-first"
  dumped "$1-$other"
  killed "$1-$other"
  restored "$1-$other"
  rm -r "$T/image"
  mv "$T/image-first" "$T/image"
  restored "$1-$end"
}
# renew VDEVICE: another one of the same addresses takes its place.
renew() {
  ctl vdev delete "$1"
  vdev_create "$1" "${1#v}" eth0 "${options[@]}"
}
are_direct() { [[ $(ctl qp list -j | grep -c '"transport": "direct"') -eq 2 ]]; }

# --- rping: three threads, a channel of rdma_cm and one for completions; its client checks all that comes back ---
pings() { grep -c 'ping data' "$T/$1.log" || true; }
has_pinged() { [[ $(pings "$1") -ge $2 ]]; }
pings_on() { # NAME...
  local name before
  for name in "$@"; do
    before=$(pings "$name")
    wait_until 20 has_pinged "$name" $((before + 20)) ||
      fail "$name does not go on after $before: $(tail -n 3 "$T/$name.log"; ctl conn list)"
  done
}
listens_anywhere() { [[ $(ctl conn list) == *LISTEN* ]]; }
begin_server() { # NAME RPING...
  spawn "$1" a root setsid stdbuf -oL "${@:2}" -s -p $PORT -v -V
  wait_until 20 listens_anywhere || fail "$1 does not listen: $(<"$T/$1.log")"
}
begin_client() { # NAME COUNT
  spawn "$1" b root setsid stdbuf -oL rping -c -a 10.0.0.1 -p $PORT -v -V -C "$2"
}
ended_or_pinged() { ended "${PID[$1]}" || has_pinged "$1" "$2"; }
# end_rping NAME COUNT: both go on, and end after so many, without an error.
end_rping() {
  local end before
  for end in a b; do
    until ended "${PID[$1-$end]}"; do
      before=$(pings "$1-$end")
      wait_until 20 ended_or_pinged "$1-$end" $((before + 1)) || fail "$1-$end does not end after $before: $(ctl conn list)"
    done
    wait "${PID[$1-$end]}" 2>/dev/null || true
    unset "PID[$1-$end]"
    [[ $(pings "$1-$end") -eq $2 ]] || fail "$1-$end: $(pings "$1-$end") of $2"
    ! grep -v 'ping data' "$T/$1-$end.log" | grep -iE 'mismatch|fail|error|unexpected' || fail "$1-$end has failed"
  done
}

kinds=(poll all shared)
[[ $mode != direct ]] || kinds=(all shared)
for how in "${kinds[@]}"; do
  begin $how $how
  goes_on $how-a $how-b
  say "$how: one end is dumped in traffic, and restored; then the other one"
  for end in a b; do
    dumped $how-$end
    killed $how-$end
    is_in "v$end" PARKED || fail "vdev list: $(ctl vdev list)"
    restored $how-$end
    is_in "v$end" ACTIVE || fail "vdev list: $(ctl vdev list)"
    goes_on $how-a $how-b
  done
  if [[ $mode == direct || ($mode == host && $how == all) ]]; then
    say "$how: vdevices are deleted and made again meanwhile: of one end, which cannot be restored without, and of both"
    for end in a b; do
      dumped $how-$end
      killed $how-$end
      ctl vdev delete v$end
      if restore $how-$end; then fail "$how-$end is restored without a vdevice"; fi
      grep -q 'vrdma: .*its network namespace has no vdevice' "$T/restore.log" || fail "$(grep -E 'Error|vrdma' "$T/restore.log")"
      wait_until 10 has_gone "${PID[$how-$end]}" || fail "$how-$end lives"
      vdev_create v$end $end eth0 "${options[@]}"
      restored $how-$end
      goes_on $how-a $how-b
    done
    dumped $how-a
    killed $how-a
    renew va
    mv "$T/image" "$T/image-first"
    dumped $how-b
    killed $how-b
    renew vb
    restored $how-b
    rm -r "$T/image"
    mv "$T/image-first" "$T/image"
    restored $how-a
    goes_on $how-a $how-b
  fi
  if [[ $mode == direct ]]; then
    say "$how: both ends are dumped, and restored in either order; one is left running, and one cannot be written"
    for order in 'a b' 'b a'; do
      read -r end other <<<"$order"
      both_away $how "$end" "$other"
      goes_on $how-a $how-b
    done
    for end in a b; do
      dumped $how-$end --leave-running
      goes_on $how-a $how-b
      if ROOM=64k dump $how-$end; then fail "CRIU wrote a program into 64 KiB"; fi
      umount "$T/image"
      goes_on $how-a $how-b
    done
    are_direct || fail "they are not linked directly: $(ctl qp list)"
  fi
  over $how
done

say "rping is dumped in traffic, and restored; then its client"
ctl quota set va msg_rate=1200  # some 300 rounds in a second, so that there is traffic as long as the test needs it
begin_server rping-a rping -a 10.0.0.1
begin_client rping-b 8000
pings_on rping-a rping-b
for end in a b; do
  again rping-$end
  pings_on rping-a rping-b
done
if [[ $mode != network ]]; then
  say "the same while its peer is stopped, or away too; by a dump that leaves it running, and by one that fails"
  for ends in 'a b' 'b a'; do
    read -r end other <<<"$ends"
    kill -STOP "${PID[rping-$other]}"
    again "rping-$end"
    kill -CONT "${PID[rping-$other]}"
    pings_on rping-a rping-b
  done
  both_away rping
  pings_on rping-a rping-b
  say "the same while its vdevice is deleted and made again, of one end and of both"
  renew_slow() { # VDEVICE
    renew "$1"
    [[ $1 != va ]] || ctl quota set va msg_rate=1200
  }
  for end in a b; do
    dumped rping-$end
    killed rping-$end
    renew_slow v$end
    restored rping-$end
    pings_on rping-a rping-b
  done
  dumped rping-a
  killed rping-a
  renew_slow va
  mv "$T/image" "$T/image-first"
  dumped rping-b
  killed rping-b
  renew_slow vb
  restored rping-b
  rm -r "$T/image"
  mv "$T/image-first" "$T/image"
  restored rping-a
  pings_on rping-a rping-b
  dumped rping-a --leave-running
  pings_on rping-a rping-b
  if ROOM=64k dump rping-b; then fail "CRIU wrote a program into 64 KiB"; fi
  umount "$T/image"
  pings_on rping-a rping-b
fi
ctl quota set va msg_rate=max
end_rping rping 8000
[[ $mode != direct ]] || exit 0

say "a listener at all addresses, which has no device open, is away when its client comes"
begin_server any-a rping
dumped any-a
killed any-a
begin_client any-b 10
has_connection() { [[ $(ctl conn list) == *" $1 "* ]]; }
awaits_connection() { wait_until 20 has_connection "$1" || fail "no connection is $1: $(ctl conn list)"; }
awaits_connection REQ_SENT
restored any-a
end_rping any 10

say "events that were not read are there after the restore, once, and a disconnect comes afterwards"
has_said() { grep -qx "$2" "$T/$1.log"; }
awaits_word() { wait_until 20 has_said "$1" "$2" || fail "$1 does not say $2: $(<"$T/$1.log")"; }
spawn events-a a root setsid "$T/lib/events" server 10.0.0.1 $PORT "$T/go-a"
awaits_word events-a listening
spawn events-b b root setsid "$T/lib/events" client 10.0.0.1 $PORT "$T/go-b"
awaits_connection REQ_RECEIVED
again events-a
again events-b  # its connection is half made
touch "$T/go-a.1"
awaits_word events-b ESTABLISHED
dumped events-a --leave-running
touch "$T/go-a.2"
awaits_word events-a ESTABLISHED
dumped events-a
killed events-a
touch "$T/go-b.1"
awaits_connection DREQ_RECEIVED
restored events-a
touch "$T/go-a.3"
awaits_word events-b DISCONNECTED
is_over() { ! has_connection TIMEWAIT; }
wait_until 20 is_over || fail "it stays in TIMEWAIT: $(ctl conn list)"
again events-a
touch "$T/go-a.4"
awaits_word events-a 'no more'
for end in a b; do
  wait_until 20 ended "${PID[events-$end]}" || fail "events-$end does not end: $(<"$T/events-$end.log")"
  unset "PID[events-$end]"
done
[[ $(xargs <"$T/events-a.log") == 'listening CONNECT_REQUEST ESTABLISHED DISCONNECTED TIMEWAIT_EXIT no more' ]] || fail "$(<"$T/events-a.log")"

[[ $mode == host ]] || exit 0

say "a listener that ends in its dump leaves nothing to wait for"
begin_server gone-a rping
# shellcheck disable=SC2016  # the script's
printf '#!/bin/sh\n[ "$CRTOOLS_SCRIPT_ACTION" != post-dump ] || kill -9 %s\n' "${PID[gone-a]}" >"$T/kill"
chmod 755 "$T/kill"
dump gone-a --leave-running --action-script "$T/kill" || true
killed gone-a
unset 'PID[gone-a]'
listens_nowhere() { ! listens_anywhere; }
wait_until 10 listens_nowhere || fail "it listens: $(ctl conn list)"

say "rstream, sockets over RDMA that verify their data, is dumped in traffic; then its peer"
moved() { ctl qp list -j | awk -F '[:,]' '/worker_bytes/ { sum += $2 } END { printf "%d", sum }'; }
has_moved() { [[ $(moved) -ge $1 ]]; }
moves_on() { local before; before=$(moved); wait_until 20 has_moved $((before + 1000000)) || fail "rstream does not go on: $(ctl conn list)"; }
ctl quota set va bandwidth=20m  # its 160 MB take 8 s, unless the limit is lifted
spawn stream-a a root setsid rstream -b 10.0.0.1 -S 65536 -C 250 -I 10 -T v
wait_until 20 listens_anywhere || fail "rstream does not listen"
spawn stream-b b root setsid rstream -s 10.0.0.1 -S 65536 -C 250 -I 10 -T v
moves_on
for end in a b; do
  again stream-$end
  moves_on
done
ctl quota set va bandwidth=max
for end in a b; do
  wait_until 60 ended "${PID[stream-$end]}" || fail "stream-$end does not end: $(ctl conn list)"
  unset "PID[stream-$end]"
  [[ $(wc -l <"$T/stream-$end.log") -eq 2 ]] && grep -q '^custom .* 250 .* 10 ' "$T/stream-$end.log" || fail "stream-$end: $(<"$T/stream-$end.log")"
done

say "what cannot be dumped is refused, and runs on"
refused() { # NAME SENTENCE
  if dump "$1"; then fail "$1 is dumped, with $2"; fi
  grep -q "vrdma: .*$2" "$T/dump.log" || fail "$1: $(grep -E 'Error|vrdma:' "$T/dump.log")"
}
spawn xrc-a a root setsid ibv_xsrq_pingpong -d va -g "$(gid_index a va 10.0.0.1)" -p $PORT
wait_until 20 listens xrc-a $PORT || fail "ibv_xsrq_pingpong does not listen: $(<"$T/xrc-a.log")"
refused xrc-a 'XRC domain'
ended "${PID[xrc-a]}" && fail "it has ended: $(<"$T/xrc-a.log")"
kill "${PID[xrc-a]}"
killed xrc-a
unset 'PID[xrc-a]'

begin left all
goes_on left-a left-b
say "a program is dumped and left running"
dumped left-a --leave-running
goes_on left-a left-b
say "a program is parked and goes on, without CRIU"
[[ $(ctl checkpoint park "${PID[left-a]}") == "process ${PID[left-a]} is parked, with 1 session of va" ]] || fail "checkpoint park"
is_in va PARKED || fail "vdev list: $(ctl vdev list)"
stays 0.3 counted left-b >/dev/null || fail "left-b goes on without its peer"
if ctl checkpoint park "${PID[left-a]}" 2>"$T/twice.log"; then fail "a program is parked twice"; fi
grep -q 'is parked already' "$T/twice.log" || fail "$(<"$T/twice.log")"
ctl checkpoint resume "${PID[left-a]}"
goes_on left-a left-b

say "a dump that fails leaves the program running"
if ROOM=64k dump left-a; then fail "CRIU wrote a program into 64 KiB"; fi
umount "$T/image"
goes_on left-a left-b

begin_server next-a rping
again next-a
say "both ends are dumped, and restored in the other order"
both_away left
goes_on left-a left-b

say "the next daemon takes restored programs over; one that is parked for too long goes on"
WORKERS_END=1
kill_daemon
start_daemon --park-grace 1
goes_on left-a left-b
begin_client next-b 10
end_rping next 10
ctl checkpoint park "${PID[left-a]}" >/dev/null
wait_until 10 has_logged 1 'was parked for too long: it goes on' || fail "it stays parked"
goes_on left-a left-b

say "peers of a parked program that is killed learn of it; its image is restored once"
ctl checkpoint park "${PID[left-a]}" >/dev/null
kill -9 "${PID[left-a]}"
killed left-a
wait_until 10 ended "${PID[left-b]}" || fail "left-b does not notice the end of its peer"
# CRIU says that it succeeds, and the plugin kills the process.
restore left-a || true
killed left-a
grep -q 'vrdma: .*it was restored before, and an image is restored once' "$T/restore.log" || fail "$(grep -E 'Error|vrdma' "$T/restore.log")"
unset 'PID[left-a]' 'PID[left-b]'
rm "$T"/left.[ab]
