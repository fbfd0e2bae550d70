# shellcheck shell=bash
# Functions for tests that source lib.sh before: programs that a vdevice va, in namespace a, and a device in a virtual machine
# run with each other, in both directions. The machine's end is serve.sh. A test sets before:
#
#   DEVICE_B             the name of the machine's device; its address is 10.0.0.2, va's 10.0.0.1
#   INDEX_A, INDEX_B     the index of each GID
#
# The machine shares the directory $T/vm.
VM=${VRDMA_VM:-$(realpath "$(dirname "${BASH_SOURCE[0]}")")/start}
PROGRAMS=()  # `row` skips those that contain none of these words; none: all run
BAD=()       # what failed

# prepare_machine EXCHANGE: before boot.
prepare_machine() {
  mkdir -m 777 "$T/vm"
  install -m 755 "$1" "$T/vm/exchange"
  echo $PORT >"$T/vm/port"
  echo 0 >"$T/count"
}
# boot OPTIONS OF THE MACHINE... -- COMMAND: until it serves. Skips the test where the machine cannot be started.
boot() {
  TMPDIR=$T "$VM" run --bind "$T/vm" "$@" >"$T/machine.log" 2>&1 &
  PID[machine]=$!
  wait_until 180 booted || fail "the virtual machine does not start"
  [[ ! -e $T/vm/ready ]] || return 0
  reap machine 5
  [[ $REAPED -ne 77 ]] || skip "$(sed -n 's/^skipped: //p' "$T/machine.log")"
  fail "the virtual machine ends with status $REAPED"
}
booted() { ended "${PID[machine]}" || [[ -e $T/vm/ready ]]; }
# shut_down: the machine ends.
shut_down() {
  touch "$T/vm/end"
  reap machine 60
  [[ $REAPED -eq 0 ]] || fail "the virtual machine ends with status $REAPED"
}

# there COMMAND...: begins it in the machine, as number $N.
there() {
  N=$(($(<"$T/count") + 1))  # also of commands that a subshell began
  echo $N >"$T/count"
  printf '%q ' timeout -k 5 "${LIMIT:-120}" "$@" >"$T/vm/new"
  mv "$T/vm/new" "$T/vm/$N.command"
}
# there_serves COMMAND...: the same, until it listens.
there_serves() {
  touch "$T/vm/$(($(<"$T/count") + 1)).serves"
  there "$@"
  wait_until 60 there_listens
}
there_listens() { [[ -e $T/vm/$N.ready || -e $T/vm/$N.status ]]; }
there_ended() { [[ -e $T/vm/${1:-$N}.status ]]; }
# in_machine COMMAND...: prints what it prints there, and has its status.
in_machine() {
  there "$@"
  wait_until 60 there_ended || fail "in the machine, $* does not end"
  cat "$T/vm/$N.log"
  return "$(<"$T/vm/$N.status")"
}
in_group() { $(enter a) grep -q 030201EF /proc/net/igmp; }
here_listens() { ended "${PID[server]}" || listens server || listening va || in_group; }

# words SIDE COMMAND: the command with the device and the GID index of that side, a or b, in place of DEV and GID, and
# with the address of SIDE in place of MINE.
words() {
  local device=va index=$INDEX_A address=10.0.0.1
  [[ $1 == a ]] || { device=$DEVICE_B index=$INDEX_B address=10.0.0.2; }
  sed -E "s/\bDEV\b/$device/; s/\bGID\b/$index/; s/\bMINE\b/$address/; s/\bPORT\b/$PORT/; s|^exchange|$T/vm/exchange|" <<<"$2"
}

# outward, inward SERVER CLIENT: the vdevice's program is the client, the server. Sets OUTCOME. What went wrong is in
# $T/server.log and $T/client.log.
outward() {
  local status=0 number
  # shellcheck disable=SC2046
  there_serves $(words b "$1") || { OUTCOME="no server"; return; }
  number=$N
  # shellcheck disable=SC2046
  on a nobody $(words a "$2") >"$T/client.log" 2>&1 || status=$?
  wait_until 60 there_ended "$number" || true
  cp "$T/vm/$number.log" "$T/server.log"
  judge $status "$(cat "$T/vm/$number.status" 2>/dev/null || echo 124)"
}
inward() {
  local status number
  # shellcheck disable=SC2046
  spawn server a nobody $(words a "$1")
  wait_until 20 here_listens || { OUTCOME="no server"; return; }
  # shellcheck disable=SC2046
  there $(words b "$2")
  number=$N
  wait_until "$((${LIMIT:-120} + 20))" there_ended "$number" || true
  cp "$T/vm/$number.log" "$T/client.log"
  wait_until 20 ended "${PID[server]}" || kill -9 "${PID[server]}"
  status=0
  wait "${PID[server]}" || status=$?
  unset "PID[server]"
  judge "$(cat "$T/vm/$number.status" 2>/dev/null || echo 124)" $status
}
judge() { # status of the client, of the server
  OUTCOME=pass
  [[ $1 -eq 0 && $2 -eq 0 ]] || OUTCOME="client $1, server $2"
}
show() { # what both programs of a row say
  local log
  for log in client server; do echo "---- $log"; tail -n 40 "$T/$log.log"; done
}

# What a test wants to go on beside the programs of a row; it may define its own.
begin_beside() { :; }
end_beside() { :; }

# row COMMAND [ARGUMENTS OF THE CLIENT [OF THE SERVER]]: in both directions; a row of the table in $T/table.
row() {
  local command=$1 of_client=${2- OTHER} of_server=${3-} outcomes=() side server client wanted=1
  # shellcheck disable=SC2076
  for wanted in "${PROGRAMS[@]}"; do [[ $command =~ "$wanted" ]] && wanted= && break; done
  [[ -z $wanted || ${#PROGRAMS[@]} -eq 0 ]] || return 0
  for side in outward inward; do
    server="$command $of_server" client="$command $of_client"
    if [[ $side == outward ]]; then client=${client//OTHER/10.0.0.2}; else client=${client//OTHER/10.0.0.1}; fi
    begin_beside
    $side "$server" "$client"
    end_beside
    outcomes+=("$OUTCOME")
    if [[ $OUTCOME != pass ]]; then BAD+=("$command, $side"); show; fi
    # exchange says more.
    if [[ $command == exchange* ]]; then say "$side:"; cat "$T/client.log"; fi
  done
  printf '| `%s` | %s | %s |\n' "$(sed -E 's/ -d DEV//; s/ --device DEV//; s/ -[gx] GID//; s/ -p PORT//; s/ -b MINE//; s/ --port PORT//; s, --gid-index GID,,' <<<"$command")" \
    "${outcomes[@]}" | tee -a "$T/table"
}
# verdict: the table; fails if a row has.
verdict() {
  say "the table"
  cat "$T/table"
  [[ ${#BAD[@]} -eq 0 ]] || fail "$(printf '%s\n' "${BAD[@]}")"
}
