#!/bin/bash
# rdmacm_takeover.sh direct|mediated STORM: rdma_cm connections continue when vrdmad is killed,
# stopped or replaced in the middle.
#
#     netns a                 netns b
#   +-----------+           +-----------+
#   | servers   |   veth    |   clients |
#   | va -- eth0|===========|eth0 -- vb |
#   +-----------+           +-----------+
. "$(dirname "$0")/lib.sh"
mode=$1
setup
cp "$2" "$T/lib/storm"
start_daemon
two_vdevices "$mode"

# replace_all_the_time: replaces the daemon until `client` has ended; the fourth time by a clean
# stop, otherwise by kill. The number is in $KILLED.
replace_all_the_time() {
  local since=$SECONDS
  KILLED=0
  until ended "${PID[client]}"; do
    ((SECONDS - since < 240)) || fail "the client does not end: $(ctl stats; ctl conn list)"
    sleep "0.$((RANDOM % 200 + 100))"
    if [[ $((++KILLED)) -eq 4 ]]; then stop_daemon; else kill_daemon; fi
    sleep "0.0$((RANDOM % 80 + 10))"
    start_daemon
  done
}
sessions() { find "$R/state" -type f | wc -l; }
begun() { ended "${PID[client]}" || [[ $(sessions) -gt $1 ]]; }
established() { [[ $(ctl conn list | grep -c ESTABLISHED) -eq $1 ]]; }
established_or_ended() { established "$1" || ended "${PID[client]}"; }
nothing_left() { [[ $(ctl conn list | wc -l) -eq 1 ]] && no_session_files; }
end_well() { # NAME...: in this order
  local name
  for name in "$@"; do
    reap "$name" 60
    # rping destroys the channel on which its other thread may be about to wait for the next event.
    [[ $(<"$T/$name.log") != 'rdma_get_cm_event: Bad file descriptor' ]] || REAPED=0
    [[ $REAPED -eq 0 ]] || fail "$name ends with status $REAPED: $(tail -n 3 "$T/$name.log"; ctl stats)"
    no_sanitizer "$name" "$T/$name.log"
  done
  wait_until 10 nothing_left || fail "left: $(ctl conn list; ls "$R/state")"
}

storm() { echo "$T/lib/storm $1 10.0.0.1 7000 $2 16 ${3:-}"; }  # SIDE CONNECTIONS [HOW]
programs=(
  "rping -s -a 10.0.0.1 -V -C 5000|rping -c -a 10.0.0.1 -V -C 5000"
  "ib_send_lat -R -F -D 2|ib_send_lat -R -F -D 2 10.0.0.1"
  "ib_write_bw -R -F -D 2|ib_write_bw -R -F -D 2 10.0.0.1"
  "ucmatose -b 10.0.0.1 -c 300 -C 10|ucmatose -s 10.0.0.1 -c 300 -C 10"
  "udaddy -b 10.0.0.1 -c 300 -C 10|udaddy -s 10.0.0.1 -c 300 -C 10"
  "rstream -b 10.0.0.1 -S 65536 -C 100 -I 30 -T a|rstream -s 10.0.0.1 -S 65536 -C 100 -I 30 -T a"
  "$(storm server 1200)|$(storm client 1200)"  # connections, of which each is made and ended once
  "$(storm server 1200 polls)|$(storm client 1200 polls)"
)
for program in rping ib_send_lat ucmatose udaddy rstream; do
  command -v $program >/dev/null || skip "$program is not installed"
done
for words in "${programs[@]}"; do
  read -ra server <<<"${words%|*}"
  read -ra client <<<"${words#*|}"
  listening_server a nobody "${server[@]}"
  if [[ ${client[0]} == ib_* ]]; then
    for _ in {1..5}; do
      spawn client b nobody "${client[@]}"
      wait_until 20 established_or_ended 4 || fail "${client[0]} does not connect"
      ended "${PID[client]}" || break
      refused_again || fail "${client[0]} ends too early: $(<"$T/client.log")"
      listening_server a nobody "${server[@]}"
    done
    [[ -n ${PID[client]:-} ]] || fail "${client[0]} always comes before its server"
  else
    kill_daemon
    start_daemon
    before=$(sessions)
    spawn client b nobody "${client[@]}"
    # A program that starts without a daemon has no device.
    wait_until 20 begun "$before" || fail "${client[0]} does not begin"
  fi
  replace_all_the_time
  end_well client server
  say "$(basename "${server[0]}") ${server[*]:1}: a new daemon $KILLED times: $(tail -n 1 "$T/client.log")"
done

say "a device is opened where there is no daemon at the moment"
stopped() { [[ $(awk '{print $3}' "/proc/${PID[client]}/stat") == T ]]; }
read -ra server <<<"$(storm server 1)"
read -ra client <<<"$(storm client 1 stops)"
listening_server a nobody "${server[@]}"
spawn client b nobody "${client[@]}"
wait_until 20 stopped || fail "the client does not stop"
kill_daemon
kill -CONT "${PID[client]}"
sleep 0.3
start_daemon
end_well client server

say "connections outlive that a vdevice is lost for a while"
listening_server a nobody rping -s -a 10.0.0.1 -V -C 20000
spawn client b nobody rping -c -a 10.0.0.1 -V -C 20000
wait_until 20 established 2 || fail "rping does not connect"
kill_daemon
hide_netns b
start_daemon
sleep 1
ended "${PID[client]}" && fail "the client has ended: $(<"$T/client.log")"
show_netns b
end_well client server  # they may have finished before anybody can look at their connections

say "who dies meanwhile is told of by the next daemon"
listening_server a nobody rping -s -a 10.0.0.1 -C 100000000
spawn client b nobody rping -c -a 10.0.0.1 -C 100000000
wait_until 20 established 2 || fail "rping does not connect"
kill_daemon
kill -9 "${PID[client]}"
reap client 5
start_daemon
reap server 10
[[ $(<"$T/server.log") == *DISCONNECT* ]] || fail "the server is not told: $(<"$T/server.log")"
wait_until 10 nothing_left || fail "left: $(ctl conn list; ls "$R/state")"

say "without another daemon, who waits learns of it when the grace is over"
stop_daemon
start_daemon --daemon-grace 2
spawn blocks a nobody "$T/lib/storm" server 10.0.0.1 7000 1 1
spawn polls b nobody "$T/lib/storm" server 10.0.0.2 7000 1 1 polls
for name in blocks polls; do
  wait_until 20 grep -q listening "$T/$name.log" || fail "$name does not listen"
done
kill_daemon
for name in blocks polls; do
  reap "$name" 20
  [[ $(<"$T/$name.log") == *"No such device"* ]] || fail "$name: status $REAPED, $(<"$T/$name.log")"
done
start_daemon
wait_until 10 nothing_left || fail "left: $(ctl conn list; ls "$R/state")"
