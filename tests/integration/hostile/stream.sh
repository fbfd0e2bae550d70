#!/bin/bash
# stream.sh PEER: a peer of stream sockets over RDMA that says what it likes (stream_peer.cc). The other end gets an error and
# ends, as a client and as a server.
#
#     netns a                netns b
#   +-----------+          +-----------+
#   | va (red)  | ======== | vb (blue) |      of one fabric
#   +-----------+          +-----------+
#   rsocket_echo.py            PEER
. "$(dirname "$0")/../lib.sh"
setup
start_daemon
two_vdevices mediated
cp "$1" "$T/peer"
cp "$LIBRARIES/librspreload.so" "$T/lib/"
cp "$(dirname "$0")/../rsocket_echo.py" "$T/"
chmod 644 "$T/rsocket_echo.py"
preload=LD_PRELOAD="${VRDMA_TEST_PRELOAD:+$VRDMA_TEST_PRELOAD:}$T/lib/librspreload.so"
peer() { LIMIT=60 on b nobody "$T/peer" "$@" >"$T/peer.log" 2>&1 || [[ $? -eq 3 || $? -eq 1 ]]; }
first=${VRDMA_SEED:-$((RANDOM % 10000))}
say "VRDMA_SEED=$first"
# well NAME SEED: it has ended, with an error of its socket at most.
well() {
  reap "$1" 20
  [[ $REAPED -le 1 ]] || fail "$1 ends with $REAPED, seed $2: $(<"$T/$1.log")"
  no_sanitizer "seed $2" "$T/$1.log"
  tail -n 1 "$T/$1.log" >>"$T/ends"
}
for ((seed = first; seed < first + 6; ++seed)); do
  listening_server a nobody env "$preload" /usr/bin/python3 "$T/rsocket_echo.py" serve 10.0.0.1 7471 1
  peer client 10.0.0.1 7471 $seed || fail "seed $seed: $(<"$T/peer.log")"
  # A hello that is refused leaves the server waiting for a client.
  if grep -q REJECTED "$T/peer.log" || ! wait_until 20 ended "${PID[server]}"; then
    grep -q . "$T/peer.log" || fail "seed $seed: the server does not notice that its client has gone"
    kill_programs server
    continue
  fi
  well server $seed
done
for ((seed = first; seed < first + 6; ++seed)); do
  spawn peer b nobody "$T/peer" server 10.0.0.2 7472 $seed
  wait_until 10 listening vb || fail "the peer does not listen: $(<"$T/peer.log")"
  spawn client a nobody env "$preload" /usr/bin/python3 "$T/rsocket_echo.py" call 10.0.0.2 7472 blocking
  well client $seed
  kill_programs peer
done
sort "$T/ends" | uniq -c
