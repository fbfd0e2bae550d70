#!/bin/bash
# With --roce-source-ports the packets of each queue pair leave from one of several UDP ports, so that routers spread
# them, and always from the same one: also those that another worker or another daemon sends.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/wire.sh"
setup
need_worker_processes
WORKERS_END=1
start_daemon --roce-source-ports 4
two_hosts
add_ipv6
for space in a b; do ip_in $space link set eth0 gso_max_segs 1; done

# merged: of lines with a source, a QPN and ports, one for each queue pair, with its ports.
merged() {
  awk 'NF { for (i = 3; i <= NF; ++i) if (!seen[$1, $2, $i]++) ports[$1 " " $2] = ports[$1 " " $2] " " $i }
    END { for (flow in ports) print flow ports[flow] }'
}
# flows ADDRESS-FIELD: sets FLOWS, a line for each queue pair of RC, UC and UD: SOURCE QPN PORTS...
flows() {
  end_capture
  tshark -r "$T/roce.pcap" -T fields -e "$1" -e infiniband.bth.destqp -e udp.srcport -e udp.dstport \
    >"$T/tshark" 2>"$T/tshark.log" || fail "tshark: $(<"$T/tshark.log")"
  awk '$4 != 4791 { exit 1 }' "$T/tshark" || fail "packets go to another port than 4791"
  FLOWS=$(awk '$2 != "0x000001" && $2 != "0x00000001" { print $1, $2, $3 }' "$T/tshark" | merged)
}
# One port for each queue pair: of 61440 and the three that follow, and several in all.
check_flows() {
  local many
  awk 'NF != 3 { exit 1 }' <<<"$FLOWS" || fail "queue pairs have several ports: $FLOWS"
  awk -v also="${1:-0}" '($3 < 61440 || $3 > 61443) && $3 != also { exit 1 }' <<<"$FLOWS" || fail "the ports are: $FLOWS"
  many=$(awk '{ print $3 }' <<<"$FLOWS" | sort -u | wc -l)
  [[ $many -ge 2 ]] || fail "$(wc -l <<<"$FLOWS") queue pairs share $many ports: $FLOWS"
}
# pairs COMMAND...: a server in b, its client in a.
pairs() {
  tcp_server b root "$@"
  spawn client a root "$@" 10.0.0.2
}

say "each queue pair has one port, both ways, over IPv4 and IPv6"
for version in 4 6; do
  gid=$(gid_index a va "$([[ $version -eq 4 ]] && echo 10.0.0.1 || echo fd00::1)")
  begin_capture
  pairs ib_write_bw -q 16 -n 20 -s 20000 -p $PORT -x "$gid"
  both_end_well ib_write_bw
  for kind in uc ud; do
    pairs ibv_${kind}_pingpong -g "$gid" -p $PORT -n 20 -s 900
    both_end_well ibv_${kind}_pingpong
  done
  flows $([[ $version -eq 4 ]] && echo ip.src || echo ipv6.src)
  check_flows
  say "   $(wc -l <<<"$FLOWS") flows from ports $(awk '{ print $3 }' <<<"$FLOWS" | sort -n | uniq -c | xargs)"
done

say "rdma_cm"
listening_server b root rping -s -a 10.0.0.2 -C 20 -V
spawn client a root rping -c -a 10.0.0.2 -C 20 -V
both_end_well rping

say "what comes to these ports is not kept"
# -u 18: a packet is sent again after 1 s and not after 67 ms, because the other's worker may come seconds later.
pairs ib_write_bw -q 16 -D 30 -u 18 -p $PORT -x "$(gid_index a va 10.0.0.1)"
wait_until 20 eval '[[ -n $($(enter b) ss -Huln "sport = 61442") ]]' || fail "there is no socket of port 61442"
$(enter a) python3 -c '
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    for _ in range(5000):
        sender.sendto(bytes(1000), ("10.0.0.2", 61442))'
queued=$($(enter b) ss -Huln "sport = 61442" | awk '{ bytes += $2 } END { print bytes }')
[[ $queued == 0 ]] || fail "$queued bytes wait in a socket that nobody reads"

say "the next worker, and the next daemon, send from the same"
# A capture has the first packets only, so that there is one for each worker.
all_are_seen() {
  begin_capture
  sleep 0.5
  flows ip.src
  [[ $(wc -l <<<"$FLOWS") -ge 32 ]]
}
all=
for killed in none workers daemon; do
  old=$(workers)
  case $killed in
    workers) for worker in $old; do kill -KILL "$worker"; done ;;
    daemon) kill_daemon ;;
  esac
  if [[ $killed != none ]]; then
    for worker in $old; do wait_until 10 ended "$worker" || fail "a worker goes on"; done
  fi
  [[ $killed != daemon ]] || start_daemon --roce-source-ports 4
  wait_until 20 all_are_seen || fail "killed: $killed; the queue pairs do not send: $FLOWS"
  all+=$FLOWS$'\n'
done
FLOWS=$(merged <<<"$all")
check_flows
both_end_well ib_write_bw

say "a port that another program has is replaced by 4791"
spawn holder a root python3 -c '
import socket, time
taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
taken.bind(("10.0.0.1", 61441))
print("bound", flush=True)
time.sleep(60)'
wait_until 10 grep -q bound "$T/holder.log" || fail "the port cannot be taken: $(<"$T/holder.log")"
begin_capture
# -Q 1: of fewer completions perftest counts too many where -n is no multiple of -t, and then does not poll any more.
# Each queue pair has port 61441 with a probability of 1/4, and of so many one has it (1 - 1e-8).
pairs ib_write_bw -q 64 -n 5 -t 4 -Q 1 -s 4096 -p $PORT -x "$(gid_index a va 10.0.0.1)"
both_end_well ib_write_bw
kill -KILL "${PID[holder]}"
reap holder 5
flows ip.src
check_flows 4791
awk '$1 == "10.0.0.1" && $3 == 61441 { exit 1 }' <<<"$FLOWS" || fail "port 61441 is another program's: $FLOWS"
grep -q '^10.0.0.1 .* 4791$' <<<"$FLOWS" || fail "no queue pair sends from port 4791 instead: $FLOWS"

say "sockets end with the programs that need them"
wait_until 15 free_of_roce_ports a b || fail "ports are still open: $($(enter a) ss -uln) $($(enter b) ss -uln)"
