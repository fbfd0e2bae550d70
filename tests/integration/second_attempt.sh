#!/bin/bash
# second_attempt.sh direct|mediated|network: programs of others that sometimes need a second attempt, because they do not
# wait for their peer. No other test of what every change must pass runs them; cm_perftest() and udpong_client() in lib.sh
# say what each of them does wrong.
#
#     netns a                 netns b
#   +-----------+           +-----------+
#   | server    |   veth    |    client |     va, vb: one tenant (direct), two tenants in one fabric (mediated),
#   | va -- eth0|===========|eth0 -- vb |     or in two fabrics that reach the network
#   +-----------+           +-----------+
. "$(dirname "$0")/lib.sh"
mode=$1
setup
start_daemon
if [[ $mode == network ]]; then two_hosts; else two_vdevices "$mode"; fi
for words in "ib_send_lat -n 100" "ib_write_bw -n 100" "ib_read_lat -n 100" "ib_send_lat -c UD -n 100" "ib_send_bw -a -n 20"; do
  # shellcheck disable=SC2086  # words
  cm_perftest a b nobody 10.0.0.1 $words -F -R
  say "$words: passed"
done
if [[ $mode == network ]]; then
  datagram_server a 7174 nobody udpong -b 10.0.0.1 -S 1000 -C 50  # it does not end by itself
  udpong_client b nobody -s 10.0.0.1 -S 1000 -C 50
  grep -q '^custom *1000 *50 ' "$T/client.log" || fail "udpong: $(<"$T/client.log")"
  kill_programs server
fi
