#!/bin/bash
# run.sh [PROGRAM...]: vrdmad in a virtual machine and vrdmad on the host: programs of both talk in both directions; the
# machine's worker is killed meanwhile; its kernel's rxe takes the port. stage.sh has the drawing.
. "$(dirname "$0")/stage.sh"
PROGRAMS=("$@")
# count VDEVICE COUNTER: of what $T/stats has.
count() { awk -v vdevice="$1" -v name="network_$2" '$1 == vdevice && $2 == name { n = $3 } END { print n + 0 }' "$T/stats"; }

row "ibv_rc_pingpong -d DEV -g GID -p PORT -c -n 50 -s 20000"
row "ib_write_bw -d DEV -x GID -p PORT -F -n 50 -s 65536"
row "rping -C 10 -V" "-c -a OTHER" "-s -a MINE"
row "exchange --device DEV --gid-index GID --port PORT" \
  "--seed ${SEED:-$RANDOM} --tests rc.in_flight,ud.send,rc.bad_rkey OTHER"

say "each packet that a vdevice sent, the other one received"
{ ctl stats va; in_machine vrdmactl stats vm0; } >"$T/stats"
for pair in "va vm0" "vm0 va"; do
  sent=$(count "${pair% *}" packets_sent) received=$(count "${pair#* }" packets_received)
  say "${pair% *} sent $sent"
  [[ $sent -ge 100 && $sent -eq $received ]] || fail "${pair% *} sent $sent packets, ${pair#* } received $received"
done
for event in rx_icrc_encapsulated rx_malformed rx_wrong_source; do
  [[ $(count va events_$event) -eq 0 && $(count vm0 events_$event) -eq 0 ]] || fail "$event is not 0"
done

say "the worker in the machine is killed while data come and go"
# shellcheck disable=SC2016  # expanded there
there bash -c 'received() { while read -r name n _; do [[ $name != Udp: ]] || last=$n; done </proc/net/snmp; }
  received && before=$last
  until received && [[ $last -gt $((before + 100)) ]]; do sleep 0.05; done
  kill -9 $(pgrep -x vrdmad-worker)'
killer=$N
for ((turn = 0; turn < 10; ++turn)); do
  ! there_ended "$killer" || break
  outward "exchange --device DEV --gid-index GID --port PORT" \
    "exchange --device DEV --gid-index GID --port PORT --tests rc.both_ways --seconds 2 10.0.0.2"
  [[ $OUTCOME == pass ]] || { show; fail "exchange, $OUTCOME"; }
done
there_ended "$killer" && [[ $(<"$T/vm/$killer.status") -eq 0 ]] || fail "no worker was killed"
# shellcheck disable=SC2016
in_machine bash -c 'grep -q "took over the session" $LOG' || fail "no session was taken over"
tail -n 1 "$T/client.log"

say "rdma_rxe in the machine takes UDP port 4791"
in_machine modprobe rdma_rxe || fail "the machine has no rdma_rxe"
in_machine vrdmactl doctor --netns "/proc/1/ns/net" >"$T/doctor.log" && fail "doctor finds nothing: $(<"$T/doctor.log")"
grep -E '^problem +port .*rdma_rxe.* so vm0 exchanges no packets with other hosts; .rmmod rdma_rxe' "$T/doctor.log" ||
  fail "doctor says: $(<"$T/doctor.log")"
in_machine rmmod rdma_rxe || fail "rdma_rxe stays"
outward "rping -s -C 2 -V -a MINE" "rping -c -C 2 -V -a 10.0.0.2"
[[ $OUTCOME == pass ]] || { show; fail "rping, $OUTCOME"; }

shut_down
verdict
