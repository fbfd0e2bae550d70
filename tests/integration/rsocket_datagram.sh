#!/bin/bash
# rsocket_datagram.sh direct|mediated root|nobody udpong
# rsocket_datagram.sh direct|mediated root|nobody sockets STRANGER: unmodified programs that use
# datagram sockets over RDMA, and a peer that crafts its own bytes. udpong treats late replies as
# lost, so it needs the processors for itself.
#
# The namespaces and vdevices of rdmacm.sh.
. "$(dirname "$0")/lib.sh"
mode=$1 user=$2 part=$3
for program in udpong python3; do
  command -v $program >/dev/null || skip "$program is not installed"
done
setup
start_daemon --daemon-grace 3
two_vdevices "$mode"
add_ipv6
cp "$LIBRARIES/librspreload.so" "$T/lib/"
cp "$(dirname "$0")/rsocket_datagrams.py" "$T/"
chmod 644 "$T/rsocket_datagrams.py"
preload=(env LD_PRELOAD="${VRDMA_TEST_PRELOAD:+$VRDMA_TEST_PRELOAD:}$T/lib/librspreload.so")
datagrams=("${preload[@]}" python3 "$T/rsocket_datagrams.py")

server() { datagram_server a "$1" "$user" "${@:2}"; } # PORT COMMAND...
client() {
  spawn client b "$user" "$@"
  reap client 90
  [[ $REAPED -eq 0 ]] || client_failed "$*"
  no_sanitizer "$*" "$T/client.log" "$T/server.log"
}
client_failed() { # COMMAND
  local status=$REAPED server=lives
  if ended "${PID[server]}"; then
    reap server 1
    server="has ended with status $REAPED"
  fi
  fail "$*: the client ends with status $status; the server $server; $(ctl stats vb)"
}
call() { # ADDRESS WAY,... [LONGEST]
  client "${datagrams[@]}" call "$1" 7777 "${@:2}"
  say "$1, $2: passed"
}
stop_server() {
  kill -9 "${PID[server]}"
  reap server 10
}
# Number of datagrams that va and vb have sent over RDMA.
sent() {
  { ctl stats va; ctl stats vb; } |
    awk '$2 == "work_requests_datagram" { sum += $3 } END { print sum + 0 }'
}
more_than() { [[ $(sent) -gt $1 ]]; }

measure() { udpong_client b "$user" "$@"; }
if [[ $part == udpong ]]; then
  for way in n b a; do  # nonblocking, blocking, with poll
    before=$(sent)
    server 7174 udpong -b 10.0.0.1 -T $way
    measure -s 10.0.0.1 -T $way -T e -S 1000 -C 500
    wait_until 10 more_than $((before + 900)) || fail "udpong does without RDMA"
    measure -s 10.0.0.1 -T $way -S 4000 -C 2000
    measure -s 10.0.0.1 -T $way -S 64 -B 65536 -C 5000
    stop_server
    say "udpong -T $way: passed"
  done
  for any in 0.0.0.0 ::; do
    server 7174 udpong -b $any -T b
    [[ $any == 0* ]] || measure -s fd00::1 -T e -S 100 -C 100
    measure -s 10.0.0.1 -T e -S 100 -C 100
    stop_server
  done
  exit
fi

stranger=$T/$(basename "$4")
cp "$4" "$stranger"
for address in 10.0.0.1 fd00::1; do
  longest=4088  # the MTU without the header
  [[ $address != *:* ]] || longest=4072
  for how in poll blocking loop; do
    before=$(sent)
    server 7777 "${datagrams[@]}" serve "$address" 7777 $how
    ways=(blocking unconnected nonblocking boundaries too_long filters refused woken threads flood)
    case $how in
      poll) ways+=(empty again inherited waiting) ;;
      blocking) ways=(blocking threads again) ;;
      loop) ways=(blocking threads) ;;
    esac
    call "$address" "$(IFS=,; echo "${ways[*]},end")" "$longest"
    reap server 20
    [[ $REAPED -eq 0 ]] || fail "the echo server ends with status $REAPED"
    more_than $((before + 2000)) || fail "they do without RDMA"
  done
done

say "a peer that knows the protocol and nothing else"
for address in 10.0.0.1 fd00::1; do
  server 7777 "${datagrams[@]}" serve "$address" 7777 blocking
  client "$stranger" "$address" 7777
  [[ $(ctl quota show va | awk '$2 == "ah" { print $3 }') -le 1024 ]] || fail "va remembers too many"
  client "$stranger" release "$address" 7777
  call "$address" threads,end
  reap server 20
  [[ $REAPED -eq 0 ]] || fail "the echo server ends with status $REAPED"
done

same_mistakes datagram "$user" "${preload[@]}"

say "where no vdevice leads, they are sockets of UDP"
on a "$user" "${datagrams[@]}" call 10.0.0.1 7777 plain || fail "what is the kernel's"
before=$(sent)
server 7778 "${datagrams[@]}" serve 127.0.0.1 7778 poll
on a "$user" "${datagrams[@]}" call 127.0.0.1 7778 blocking,end 60000 || fail "over UDP"
reap server 20
[[ $REAPED -eq 0 && $(sent) -eq $before ]] || fail "over UDP the server ends with status $REAPED"

say "the MTU becomes smaller"
server 7777 "${datagrams[@]}" serve 10.0.0.1 7777 blocking
says() { grep -q "$1" "$T/client.log"; }
spawn client b "$user" "${datagrams[@]}" call 10.0.0.1 7777 shrinks 4088
wait_until 20 says ready || fail "the client is not connected"
ip_in b link set eth0 mtu 1500
has_mtu() { [[ $(ctl vdev list) =~ vb\ .*\ $1\  ]]; }
wait_until 20 has_mtu 1024 || fail "vb has not noticed"
touch "$T/shrunk"
reap client 60
[[ $REAPED -eq 0 ]] || fail "the client ends with status $REAPED"
call 10.0.0.1 end
reap server 20
ip_in b link set eth0 mtu 4200

say "another daemon"
server 7777 "${datagrams[@]}" serve 10.0.0.1 7777 blocking
spawn client b "$user" "${datagrams[@]}" call 10.0.0.1 7777 forever
answers() { [[ $(grep -c answered "$T/client.log") -gt $1 ]]; }
wait_until 20 answers 2 || fail "there are no answers"
before=$(sent)
kill_daemon
start_daemon --daemon-grace 3
count=$(grep -c answered "$T/client.log")
wait_until 30 answers $((count + 5)) || fail "there are no answers any more"
[[ $(sent) -gt 500 ]] || fail "they do without RDMA after that"
kill -9 "${PID[client]}"
reap client 10

say "no daemon any more"
spawn client b "$user" "${datagrams[@]}" call 10.0.0.1 7777 silent
wait_until 20 says ready || fail "the client is not connected"
kill_daemon
reap client 30
[[ $REAPED -eq 0 ]] && says 'told ENETDOWN' || fail "the client is not told (status $REAPED)"
reap server 30
[[ $REAPED -eq 1 ]] || fail "the server is not told (status $REAPED)"
