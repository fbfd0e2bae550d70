#!/bin/bash
# exchange.sh direct|mediated|network PROGRAM: tests/interop/rxe/exchange.cc between two vdevices, which compares
# data of all kinds of requests, and what fails and how. SEED and SECONDS_OF_EACH test may be set.
#
#     netns a                 netns b
#   +-----------+           +-----------+
#   | server    |   veth    |    client |   va, vb: one tenant (direct), two tenants in one fabric
#   | va -- eth0|===========|eth0 -- vb |   (mediated), or two in two fabrics, which send packets
#   | 10.0.0.1  |           | 10.0.0.2  |   of RoCE v2 to each other (network)
#   +-----------+           +-----------+
. "$(dirname "$0")/lib.sh"
mode=$1
setup
install -m 755 "$2" "$T/exchange"
start_daemon
two_ends "$mode"
seed=${SEED:-$RANDOM}
tcp_server a nobody "$T/exchange" --device va --port $PORT
LIMIT=280 on b nobody "$T/exchange" --device vb --port $PORT --seed "$seed" --seconds "${SECONDS_OF_EACH:-0}" \
  10.0.0.1 >"$T/client.log" 2>&1 || STATUS=$?
cat "$T/client.log"
reap server 20
[[ ${STATUS:-0} -eq 0 && $REAPED -eq 0 ]] || fail "seed $seed: the server says: $(<"$T/server.log")"
no_sanitizer "exchange" "$T/server.log" "$T/client.log"
