#!/bin/bash
# rdmacm_storm.sh direct|mediated PROGRAM [CONNECTIONS]: thousands of connections are made and
# ended.
#
#     netns a                    netns b
#   +--------------+           +--------------+
#   | 8 servers    |   veth    |    8 clients |
#   | va --- eth0  |===========|  eth0 --- vb |
#   +--------------+           +--------------+
. "$(dirname "$0")/lib.sh"
mode=$1 binary=$2
connections=${3:-10000} window=${WINDOW:-64} pairs=${PAIRS:-8}
setup
start_daemon
two_vdevices "$mode"
ctl quota set va qp=64k cq=4k
ctl quota set vb qp=64k cq=4k
cp "$binary" "$T/storm"
used() { ctl quota show "$1" | awk -v kind="$2" '$2 == kind { print $3 }'; }

say "$connections connections, $pairs pairs of processes"
each=$((connections / pairs))
for ((i = 0; i < pairs; ++i)); do
  spawn "server$i" a root "$T/storm" server 10.0.0.1 $((7000 + i)) $each "$window"
done
for ((i = 0; i < pairs; ++i)); do
  wait_until 20 grep -q listening "$T/server$i.log" || fail "a server does not listen"
done
began=${EPOCHREALTIME/./}
for ((i = 0; i < pairs; ++i)); do
  spawn "client$i" b root "$T/storm" client 10.0.0.1 $((7000 + i)) $each "$window"
done
for ((i = 0; i < pairs; ++i)); do
  for side in client server; do
    reap "$side$i" 120
    [[ $REAPED -eq 0 ]] || fail "$side $i: $(<"$T/$side$i.log")"
  done
done
took=$((${EPOCHREALTIME/./} - began))
say "$((each * pairs * 1000000 / took)) connections a second"
# Each end creates a queue pair, connects it, disconnects and destroys it: four requests, and some
# at the start.
asked() { ctl stats | awk -v name="$1" '$1 == name && $2 == "requests" { print $3 }'; }
for vdevice in va vb; do
  [[ $(asked $vdevice) -le $((each * pairs * 4 + pairs * 50)) ]] ||
    fail "$vdevice was asked $(asked $vdevice) times for $((each * pairs)) connections"
done
ctl conn stats | grep -E 'repeated|duplicate|stray|limited|refused' || true
none_left() {
  [[ $(ctl conn list | wc -l) -eq 1 && $(used va cm_ids)$(used vb cm_ids) == 00 ]] &&
    [[ $(used va cm_conns)$(used vb cm_conns)$(used va qp)$(used vb qp) == 0000 ]]
}
wait_until 30 none_left || fail "$(ctl conn list | head; ctl quota show | grep -E 'cm_|qp')"
