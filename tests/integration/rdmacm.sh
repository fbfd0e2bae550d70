#!/bin/bash
# rdmacm.sh direct|mediated root|nobody: programs that connect by rdma_cm, unmodified.
#
#     netns a                 netns b
#   +-----------+           +-----------+
#   | server    |   veth    |    client |
#   | va -- eth0|===========|eth0 -- vb |     va, vb: one tenant (direct), or
#   | 10.0.0.1  |           | 10.0.0.2  |     two tenants in one fabric (mediated)
#   | fd00::1   |           | fd00::2   |
#   +-----------+           +-----------+
. "$(dirname "$0")/lib.sh"
mode=$1 user=$2
for program in rping ucmatose udaddy mckey cmtime rdma_client rdma_server; do
  command -v $program >/dev/null || skip "$program is not installed"
done
setup
start_daemon
two_vdevices "$mode"
add_ipv6

server() { listening_server a "$user" "$@"; }
meet() { # CLIENT...: the server's words stand in `words`
  server "${words[@]}"
  spawn client b "$user" "$@"
  both_end_well "$@"
  say "$*: passed"
}

for address in 10.0.0.1 fd00::1; do
  words=(rping -s -C 10 -V -a "$address")
  meet rping -c -C 10 -V -a "$address"
  words=(ucmatose -b "$address" -c 20 -C 50 -S 1000)
  meet ucmatose -s "$address" -c 20 -C 50 -S 1000
  words=(udaddy -b "$address" -c 10 -C 20)
  meet udaddy -s "$address" -c 10 -C 20
done
for size in 23 4096 65535; do
  words=(rping -s -C 3 -S $size -V)  # at the wildcard
  meet rping -c -C 3 -S $size -V -a 10.0.0.1
done
words=(rdma_server)
meet rdma_client -s 10.0.0.1

say "times of connections"
for address in 10.0.0.1 fd00::1; do
  server cmtime -b $address
  on b "$user" cmtime -s $address -c 50 >"$T/client.log" 2>&1 || fail "cmtime at $address: $(<"$T/client.log")"
  grep -qE '^disconnect +:' "$T/client.log" || fail "cmtime at $address: $(<"$T/client.log")"
  kill "${PID[server]}" 2>/dev/null || true  # it stays
  reap server 5
done

say "groups"
group() { # ADDRESS_A ADDRESS_B GROUP
  local _
  spawn server a "$user" mckey -b "$1" -m "$3" -C 40
  for _ in {1..20}; do  # what is sent before the receiver has joined is lost
    spawn client b "$user" mckey -s -b "$2" -m "$3" -C 40
    reap client 20
    [[ $REAPED -eq 0 ]] || fail "mckey in $3: the sender ends with status $REAPED"
    if wait_until 1 ended "${PID[server]}"; then break; fi
  done
  reap server 5
  [[ $REAPED -eq 0 ]] || fail "mckey in $3: the receiver ends with status $REAPED"
  grep -q 'receiving data transfers' "$T/server.log" || fail "mckey in $3: nothing was received"
}
group 10.0.0.1 10.0.0.2 239.7.8.9
group fd00::1 fd00::2 ff0e::7

say "a server that stays"
server rping -s -P -a 10.0.0.1
for _ in {1..3}; do  # one after the other: the server forgets a client that overlaps with another
  spawn client b "$user" rping -c -C 5 -V -a 10.0.0.1
  reap client 20
  if grep -q 'Bad file descriptor' "$T/client.log"; then REAPED=0; fi  # as above
  [[ $REAPED -eq 0 ]] || fail "rping with a server that stays ends with status $REAPED"
done
ended "${PID[server]}" && fail "the server did not stay"
kill "${PID[server]}"
reap server 5

say "nobody listens"
if on b "$user" rping -c -C 1 -a 10.0.0.1 >"$T/client.log" 2>&1; then fail "a connection to nobody"; fi
grep -q 'REJECTED' "$T/client.log" || fail "the client was not refused"
say "nobody has the address"
if on b "$user" rping -c -C 1 -a 10.0.0.77 >"$T/client.log" 2>&1; then fail "a connection to nowhere"; fi
grep -q 'ADDR_ERROR' "$T/client.log" || fail "the address was resolved"

say "a port is held by one, and free when he is killed"
server rping -s -a 10.0.0.1 -p 7777
if on a "$user" rping -s -a 10.0.0.1 -p 7777 >"$T/second.log" 2>&1; then fail "a second listener"; fi
grep -q 'Address already in use' "$T/second.log" || fail "the second listener fails for another reason"

say "the peer of a killed program is notified"
spawn client b "$user" rping -c -C 100000000 -a 10.0.0.1 -p 7777
established() { [[ $(ctl conn list va) == *ESTABLISHED* && $(ctl conn list vb) == *ESTABLISHED* ]]; }
wait_until 20 established || fail "the client does not connect: $(<"$T/client.log")"
kill -9 "${PID[server]}"
reap server 5
reap client 10
grep -q 'DISCONNECT EVENT' "$T/client.log" || fail "the client was not told (status $REAPED)"
words=(rping -s -C 3 -a 10.0.0.1 -p 7777)
meet rping -c -C 3 -a 10.0.0.1 -p 7777
