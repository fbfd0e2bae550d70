#!/bin/bash
# rsocket.sh direct|mediated root|nobody CHILDREN: programs that use sockets over RDMA, unmodified;
# CHILDREN is rsocket_children.cc.
#
# The namespaces and vdevices of rdmacm.sh.
. "$(dirname "$0")/lib.sh"
mode=$1 user=$2
for program in rstream riostream rcopy python3; do
  command -v $program >/dev/null || skip "$program is not installed"
done
setup
start_daemon
two_vdevices "$mode"
add_ipv6

server() { listening_server a "$user" "$@"; }
client() {
  spawn client b "$user" "$@"
  reap client 60
  [[ $REAPED -eq 0 ]] || fail "$*: the client ends with status $REAPED"
}
meet() { # CLIENT...: the server's words stand in `words`
  server "${words[@]}"
  client "$@"
  reap server 20
  [[ $REAPED -eq 0 ]] || fail "${words[*]}: the server ends with status $REAPED"
  no_sanitizer "$*" "$T/server.log" "$T/client.log"
  say "$*: passed"
}
# Without RDMA the same programs would use TCP.
over_rdma() {
  [[ $(ctl conn list va) == *ESTABLISHED* && $(ctl conn list vb) == *ESTABLISHED* ]]
}

for address in 10.0.0.1 fd00::1; do
  family=ip
  [[ $address != *:* ]] || family=ipv6
  for way in b n a; do  # blocking, nonblocking, with poll
    words=(rstream -f $family -b "$address" -T $way -T v -C 100)
    meet rstream -f $family -s "$address" -T $way -T v -C 100
    words=(riostream -f $family -b "$address" -T $way -T v -C 100)
    meet riostream -f $family -s "$address" -T $way -T v -C 100
  done
  words=(rstream -f $family -b "$address" -S all -C 20)
  meet rstream -f $family -s "$address" -S all -C 20
done
words=(rstream -B 4096 -T v -S 300000 -I 2 -C 2)  # more than there is room for; at the wildcard
meet rstream -s 10.0.0.1 -B 4096 -T v -S 300000 -I 2 -C 2

say "a file"
head -c 20000000 /dev/urandom >"$T/file"
chmod 644 "$T/file"
mkdir -m 777 "$T/to"
server rcopy
client rcopy "$T/file" "10.0.0.1:$T/to/file"
copied() { cmp -s "$T/file" "$T/to/file"; }
wait_until 10 copied || fail "the file is not what was sent"

say "the peer of a killed program is notified"
kill -9 "${PID[server]}"
reap server 5
server rstream
spawn client b "$user" rstream -s 10.0.0.1 -S 1000 -C 1000000000
wait_until 10 over_rdma || fail "there is no connection"
ended "${PID[client]}" && fail "the client ended by itself"
kill -9 "${PID[server]}"
reap server 5
reap client 10
[[ $REAPED -ne 0 && $REAPED -ne 137 ]] || fail "the client was not told (status $REAPED)"

say "nobody listens"
if on b "$user" rstream -s 10.0.0.1 -T b >"$T/client.log" 2>&1; then fail "a connection to nobody"; fi
grep -q 'Connection refused' "$T/client.log" || fail "the client was not refused"

say "a small quota"
ctl quota set vb send_wr=8
words=(rstream -b 10.0.0.1 -T v -S 100000 -C 10)
meet rstream -s 10.0.0.1 -T v -S 100000 -C 10
ctl quota set vb send_wr=3
server rstream -b 10.0.0.1
if on b "$user" rstream -s 10.0.0.1 -T b >"$T/client.log" 2>&1; then fail "a connection with 3 requests"; fi
grep -q 'No buffer space' "$T/client.log" || fail "the client ends otherwise: $(<"$T/client.log")"
kill -9 "${PID[server]}"
reap server 5
ctl quota set vb send_wr=16384

say "programs of plain sockets"
cp "$LIBRARIES/librspreload.so" "$T/lib/"
cp "$(dirname "$0")/rsocket_echo.py" "$T/"
chmod 644 "$T/rsocket_echo.py"
preload=(env LD_PRELOAD="${VRDMA_TEST_PRELOAD:+$VRDMA_TEST_PRELOAD:}$T/lib/librspreload.so")
echo_program=("${preload[@]}" python3 "$T/rsocket_echo.py")
for address in 10.0.0.1 fd00::1; do
  for how in "serve 6" "loop 5"; do
    ways=(blocking nonblocking half leave edges copies)
    [[ $how != loop* ]] || ways=(half edges loop)  # of which the last one comes three times
    server "${echo_program[@]}" "${how% *}" "$address" 7777 "${how#* }"
    for way in "${ways[@]}"; do
      client "${echo_program[@]}" call "$address" 7777 $way
      say "$address, $way: passed"
    done
    reap server 20
    [[ $REAPED -eq 0 ]] || fail "the echo server ends with status $REAPED"
  done
done
words=("${preload[@]}" rstream -T s -T v -S 100000 -C 50)
meet "${preload[@]}" rstream -s 10.0.0.1 -T s -T v -S 100000 -C 50

same_mistakes stream "$user" "${preload[@]}"

say "children of programs with sockets"
cp "$3" "$T/children"
LIMIT=60 on a "$user" "${preload[@]}" "$T/children" 10.0.0.1 7780 </dev/null ||
  fail "children: it ends with status $?"

say "the peer of a killed program is notified there too"
server "${echo_program[@]}" serve 10.0.0.1 7777 1
spawn client b "$user" "${echo_program[@]}" call 10.0.0.1 7777 silent
says() { grep -q "$1" "$T/client.log"; }
wait_until 20 says connected || fail "the client is not connected"
over_rdma || fail "the sockets do without RDMA"
kill -9 "${PID[server]}"
reap server 5
reap client 10
[[ $REAPED -eq 0 ]] && says told || fail "the client was not told (status $REAPED)"

say "where no vdevice leads, they are sockets of TCP"
on a "$user" "${preload[@]}" python3 -c '
import socket
listener = socket.create_server(("127.0.0.1", 0))
client = socket.socket()
client.bind(("10.0.0.1", 0))
bound = client.getsockname()
client.connect(listener.getsockname())
assert client.getsockname() == listener.accept()[1] == bound, (client.getsockname(), bound)
refused = socket.socket()
try:
    refused.connect(("10.0.0.1", 7779))
except ConnectionRefusedError:
    assert refused.getsockname()[0] == "0.0.0.0", refused.getsockname()
else:
    raise AssertionError("a server listens")' || fail "a fallback changes the address"
spawn server a "$user" "${echo_program[@]}" serve 127.0.0.1 7778 1
wait_until 20 listens server 7778 || fail "nobody listens by TCP"
spawn client a "$user" "${echo_program[@]}" call 127.0.0.1 7778 nonblocking
reap client 20
[[ $REAPED -eq 0 ]] || fail "over TCP the client ends with status $REAPED"
reap server 20
