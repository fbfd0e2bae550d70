#!/bin/bash
# run.sh [PROGRAM...]: programs in a virtual machine with the kernel's vmw_pvrdma, and programs of the host, talk in both
# directions through a vdevice that vrdma-pvrdma shows the machine; meanwhile each of those who take part ends. stage.sh has
# the drawing.
. "$(dirname "$0")/stage.sh"
PROGRAMS=("$@")
WORKERS_END=1
start_device
boot_guest
# shows TEXT...: vdev show says this of the machine.
shows() {
  local text
  ctl vdev show vb -j >"$T/shown"
  for text; do grep -qF "$text" "$T/shown" || return 1; done
}
wait_until 10 shows '"vmm_connected": true' '"driver_version": 20' '"commands_refused": 0' '"replaced": 0' ||
  fail "vdev show: $(<"$T/shown")"
exchange="exchange --device DEV --gid-index GID --port PORT"

row "ibv_rc_pingpong -d DEV -g GID -p PORT -c -n 50 -s 20000"
row "ibv_rc_pingpong -d DEV -g GID -p PORT -c -e -n 50"
row "ibv_ud_pingpong -d DEV -g GID -p PORT -c -n 50 -s 1000"
row "ibv_srq_pingpong -d DEV -g GID -p PORT -c -n 50 -s 8000"
row "ib_write_bw -d DEV -x GID -p PORT -F -n 50 -s 65536"
row "ib_read_bw -d DEV -x GID -p PORT -F -n 50 -s 65536"
row "ib_send_lat -d DEV -x GID -p PORT -F -n 50"
row "ib_send_lat -e -d DEV -x GID -p PORT -F -n 200"
row "ib_atomic_lat -d DEV -x GID -p PORT -F -n 50"
row "rping -C 10 -V" "-c -a OTHER" "-s -a MINE"
row "$exchange" "--seed ${SEED:-$RANDOM} --tests rc.in_flight,ud.send,rc.bad_rkey OTHER"

# Whether a worker maps the machine's memory.
maps_memory() {
  local worker
  for worker in $(workers); do
    if grep -q memory-backend-memfd "/proc/$worker/maps"; then return 0; fi
  done
  return 1
}
maps_none() { ! maps_memory; }
maps_memory || fail "the machine's memory is reached: $(<"$T/device.log")"

say "by packets, as between two hosts"
ctl fabric set shared --reach wire >/dev/null
row "rping -C 11 -V" "-c -a OTHER" "-s -a MINE"
row "ibv_rc_pingpong -d DEV -g GID -p PORT -c -n 54 -s 20000"
row "ibv_ud_pingpong -d DEV -g GID -p PORT -c -n 54 -s 1000"
row "ib_write_bw -d DEV -x GID -p PORT -F -n 54 -s 65536"
for vdevice in va vb; do
  sent=$(stat_of $vdevice network_packets_sent)
  say "$vdevice has sent $sent packets"
  [[ $sent -ge 500 ]] || fail "$vdevice has sent $sent packets"
done
ctl fabric set shared --reach host >/dev/null

# begin COMMAND [ARGUMENTS OF THE CLIENT]: the machine's program is the server. Until data come and go.
begin() {
  # shellcheck disable=SC2046
  there_serves $(words b "$1")
  # shellcheck disable=SC2046
  spawn client a nobody $(words a "$1 ${2:-} 10.0.0.2")
  wait_until 20 works va || fail "nothing is sent: $(<"$T/client.log")"
}
# beside COMMAND...: nothing of them is lost or wrong while it runs.
beside() {
  local before
  before=$(took_over)
  begin "$exchange" "--tests rc.both_ways --seconds 3"
  "$@"
  reap client 60
  [[ $REAPED -eq 0 ]] || fail "exchange ends with status $REAPED"
  tail -n 1 "$T/client.log"
  wait_until 20 there_ended && [[ $(<"$T/vm/$N.status") -eq 0 ]] || fail "in the machine, exchange says: $(<"$T/vm/$N.log")"
  all_taken_over $((before + 1)) || fail "no session was taken over"
}
kill_workers() { workers | xargs kill -9; }
restart_daemon() {
  kill_daemon
  start_daemon
}
say "the workers are killed while data come and go"
beside kill_workers
maps_memory || fail "the next worker reaches the machine's memory"
say "vrdmad is killed, and started again"
beside restart_daemon

say "the process that serves the machine is killed while data come and go"
# confined PID...: each is nobody without capabilities, and with a filter of system calls.
confined() {
  local pid status
  for pid; do
    status=$(<"/proc/$pid/status")
    [[ $status =~ Uid:$'\t'$(id -u nobody) && $status =~ CapEff:$'\t'0{16} && $status =~ CapPrm:$'\t'0{16} &&
      $status =~ Seccomp:$'\t'2 && $status =~ NoNewPrivs:$'\t'1 ]] || return 1
  done
}
goes_on() { [[ $(grep -c "the guest's driver has its device again" "$T/device.log") -eq 1 ]]; }
begin "ibv_rc_pingpong -d DEV -g GID -p PORT -n 10000000"
pkill -9 -P "${PID[device]}" || fail "vrdma-pvrdma has no process that serves"
began=${EPOCHREALTIME/./}
wait_until 10 goes_on || fail "no process goes on: $(<"$T/device.log")"
wait_until 10 shows '"vmm_connected": true' '"driver_version": 20' '"replaced": 1' || fail "vdev show: $(<"$T/shown")"
ctl vdev show vb | grep -A 7 '^ *exported '
say "the next one goes on after $(((${EPOCHREALTIME/./} - began) / 1000)) ms"
wait_until 20 there_ended || fail "the program in the machine does not end"
grep 'Failed status' "$T/vm/$N.log" || fail "the program in the machine has no error: $(<"$T/vm/$N.log")"
reap client 20
[[ $REAPED -ne 0 ]] || fail "the program of the host does not notice"
row "ibv_rc_pingpong -d DEV -g GID -p PORT -c -e -n 50"
row "rping -C 10 -V" "-c -a OTHER" "-s -a MINE"
maps_memory || fail "the next process has the machine's memory reached"
# shellcheck disable=SC2046  # one process
confined "${PID[device]}" $(pgrep -P "${PID[device]}") || fail "vrdma-pvrdma is not confined"

# has_nothing: the vdevice has no object of the machine any more.
has_nothing() {
  ctl quota show vb >"$T/quota" && awk '$2 ~ /^(pd|mr|cq|qp|srq|ah)$/ && $3 != 0 { left = 1 } END { exit left }' "$T/quota"
}
load() { INDEX_B=$(in_machine "$here/load" 10.0.0.2) || fail "the port does not come back: $INDEX_B"; }
for _ in 1 2; do
  say "the driver is removed and comes back"
  in_machine rmmod vmw_pvrdma || fail "vmw_pvrdma stays"
  wait_until 10 has_nothing || fail "objects stay: $(<"$T/quota")"
  load
done
row "ibv_rc_pingpong -d DEV -g GID -p PORT -c -n 51"
say "the link goes down and up"
in_machine ip link set eth0 down
in_machine ip link set eth0 up
load
row "ibv_rc_pingpong -d DEV -g GID -p PORT -c -n 52"

has_gone() { [[ $(grep -c 'the VMM has gone' "$T/device.log") -eq $1 ]] && has_nothing; }
say "the machine is killed while data come and go"
begin "ib_write_bw -d DEV -x GID -p PORT -F -D 60 -s 65536"
kill_programs machine
wait_until 10 has_gone 1 || fail "objects stay: $(<"$T/quota"); vrdma-pvrdma says: $(<"$T/device.log")"
wait_until 10 maps_none || fail "a worker keeps the memory of a machine that has gone"
reap client 20
grep -E '^ *Failed status' "$T/client.log" || fail "the other end has no error: $(<"$T/client.log")"
say "the next machine comes, and ends"
boot_guest
row "ibv_rc_pingpong -d DEV -g GID -p PORT -c -n 53"
shut_down
wait_until 10 has_gone 2 || fail "objects stay: $(<"$T/quota"); vrdma-pvrdma says: $(<"$T/device.log")"
tail -n 1 "$T/device.log"

kill "${PID[device]}"
reap device 10
[[ $REAPED -eq 0 ]] || fail "vrdma-pvrdma ends with status $REAPED"
no_sanitizer vrdma-pvrdma "$T/device.log"
verdict
