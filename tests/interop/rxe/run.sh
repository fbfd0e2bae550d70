#!/bin/bash
# run.sh [PROGRAM...]: a vdevice and the kernel's rxe in a virtual machine, which run programs with each other in both
# directions. It prints a row for each program, of all or of those whose command contains one of the arguments.
#
#     netns a                 netns w                       virtual machine
#   +-----------+           +----------------------+      +--------------------+
#   | va -- eth0|===veth====|port -- bridge -- tap |======|eth0 -- rxe0        |
#   | 10.0.0.1  |           |                      |      |10.0.0.2            |
#   +-----------+           +----------------------+      +--------------------+
#
# VRDMA_VM is the program that starts the machine, by default rdma-vm, with
#   run --netns NS --bridge BR --tap TAP --mtu N --bind DIR --timeout SECONDS -- COMMAND
# COMMAND runs there as root, with this host's files, and eth0 is at the tap, which is in NS and its bridge.
# DIR is shared. MTU, 4200 by default, is that of the network.
#
# With KILLS=1 the programs run longer, and the vdevice's worker is killed every 1.2 s meanwhile. The next one wakes
# who waits for events, so rc.solicited of exchange is left out.
. "$(dirname "$0")/../../integration/lib.sh"
VM=${VRDMA_VM:-$(command -v rdma-vm || true)}
[[ -n $VM ]] || skip "needs a program that starts virtual machines: VRDMA_VM, or rdma-vm in PATH"
here=$(realpath "$(dirname "$0")")
EXCHANGE=${VRDMA_EXCHANGE:-$BUILD/tests/interop/vrdma_exchange}
mtu=${MTU:-4200}
setup
[[ -z ${KILLS:-} ]] || WORKERS_END=1
mkdir -m 777 "$T/vm"
install -m 755 "$EXCHANGE" "$T/vm/exchange"
echo $PORT >"$T/vm/port"
start_daemon
netns_add a w
join a eth0 10.0.0.1/24 w port 10.0.0.3/24
ip_in w address flush dev port
ip_in w link add bridge mtu "$mtu" type bridge
ip_in w link set port master bridge
ip_in w link set bridge up
for end in "a eth0" "w port"; do ip_in ${end% *} link set "${end#* }" mtu "$mtu"; done
vdev_create va a eth0 --fabric outside
ctl fabric set outside --reach network >/dev/null
INDEX_A=$(gid_index a va 10.0.0.1)

"$VM" run --netns "$(ns w)" --bridge bridge --tap tap --mtu "$mtu" --ip 10.0.0.2/24 --bind "$T/vm" \
  --timeout "${VM_LIMIT:-1500}" -- "$here/inside" "$T/vm" 10.0.0.2/24 >"$T/machine.log" 2>&1 &
PID[machine]=$!
booted() { ended "${PID[machine]}" || [[ -e $T/vm/ready ]]; }
wait_until 180 booted || fail "the virtual machine does not start"
[[ -e $T/vm/ready ]] || fail "the virtual machine has ended"
INDEX_B=$(<"$T/vm/index")
say "Linux $(<"$T/vm/kernel"), perftest $(dpkg-query -W -f '${Version}' perftest), MTU $mtu"

# there COMMAND...: begins it in the machine, as number $N.
N=0
there() {
  N=$((N + 1))
  printf '%q ' timeout -k 5 "${LIMIT:-120}" "$@" >"$T/vm/new"
  mv "$T/vm/new" "$T/vm/$N.command"
}
there_listens() { [[ -e $T/vm/$N.ready || -e $T/vm/$N.status ]]; }
there_ended() { [[ -e $T/vm/$N.status ]]; }
in_group() { $(enter a) grep -q 030201EF /proc/net/igmp; }
here_listens() { ended "${PID[server]}" || listens server || listening va || in_group; }

# words SIDE COMMAND: the command with the device and the GID index of that side, a or b, in place of DEV and GID, and
# with the address of SIDE in place of MINE.
words() {
  local device=va index=$INDEX_A address=10.0.0.1
  [[ $1 == a ]] || { device=rxe0 index=$INDEX_B address=10.0.0.2; }
  sed -E "s/\bDEV\b/$device/; s/\bGID\b/$index/; s/\bMINE\b/$address/; s/\bPORT\b/$PORT/; s|^exchange|$T/vm/exchange|" <<<"$2"
}

# outward, inward SERVER CLIENT: the vdevice's program is the client, the server. Sets OUTCOME. What went wrong is in
# $T/server.log and $T/client.log.
outward() {
  local status=0
  # shellcheck disable=SC2046
  there $(words b "$1")
  wait_until 60 there_listens || { OUTCOME="no server"; return; }
  # shellcheck disable=SC2046
  on a nobody $(words a "$2") >"$T/client.log" 2>&1 || status=$?
  wait_until 60 there_ended || true
  cp "$T/vm/$N.log" "$T/server.log"
  judge $status "$(cat "$T/vm/$N.status" 2>/dev/null || echo 124)"
}
inward() {
  local status
  # shellcheck disable=SC2046
  spawn server a nobody $(words a "$1")
  wait_until 20 here_listens || { OUTCOME="no server"; return; }
  # shellcheck disable=SC2046
  there $(words b "$2")
  wait_until "$((${LIMIT:-120} + 20))" there_ended || true
  cp "$T/vm/$N.log" "$T/client.log"
  wait_until 20 ended "${PID[server]}" || kill -9 "${PID[server]}"
  status=0
  wait "${PID[server]}" || status=$?
  unset "PID[server]"
  judge "$(cat "$T/vm/$N.status" 2>/dev/null || echo 124)" $status
}
judge() { # status of the client, of the server
  OUTCOME=pass
  [[ $1 -eq 0 && $2 -eq 0 ]] || OUTCOME="client $1, server $2"
}
show() { # what both programs of a row say
  local log
  for log in client server; do echo "---- $log"; tail -n 40 "$T/$log.log"; done
}

kill_workers() {
  while sleep 1.2; do
    if kill -9 $(workers) 2>/dev/null; then echo >>"$T/kills"; fi
  done
}
stop_killer() {
  [[ -n ${PID[killer]:-} ]] || return 0
  kill "${PID[killer]}"
  wait "${PID[killer]}" 2>/dev/null || true
  unset "PID[killer]"
}

# row COMMAND [ARGUMENTS OF THE CLIENT [OF THE SERVER]]
row() {
  local command=$1 of_client=${2- OTHER} of_server=${3-} outcomes=() side server client wanted=1
  # shellcheck disable=SC2076
  for wanted in "${CHOSEN[@]}"; do [[ $command =~ "$wanted" ]] && wanted= && break; done
  [[ -z $wanted || ${#CHOSEN[@]} -eq 0 ]] || return 0
  for side in outward inward; do
    server="$command $of_server" client="$command $of_client"
    if [[ $side == outward ]]; then client=${client//OTHER/10.0.0.2}; else client=${client//OTHER/10.0.0.1}; fi
    [[ -z ${KILLS:-} ]] || { kill_workers & PID[killer]=$!; }
    $side "$server" "$client"
    stop_killer
    outcomes+=("$OUTCOME")
    if [[ $OUTCOME != pass ]]; then BAD+=("$command, $side"); show; fi
    # exchange says more.
    if [[ $command == exchange* ]]; then say "$side:"; cat "$T/client.log"; fi
  done
  printf '| `%s` | %s | %s |\n' "$(sed -E 's/ -d DEV//; s/ --device DEV//; s/ -[gx] GID//; s/ -p PORT//; s/ -b MINE//; s/ --port PORT//; s, --gid-index GID,,' <<<"$command")" \
    "${outcomes[@]}" | tee -a "$T/table"
}

CHOSEN=("$@")
BAD=()
if [[ -n ${KILLS:-} ]]; then
  row "ibv_rc_pingpong -d DEV -g GID -p PORT -c -n 2000 -s 20000 -m 1024"
  row "ib_send_lat -d DEV -x GID -p PORT -F -n 1000"
  row "ib_write_lat -d DEV -x GID -p PORT -F -n 1000"
  row "ib_read_bw -d DEV -x GID -p PORT -F -n 200 -s 65536"
  row "ib_write_bw -d DEV -x GID -p PORT -F -n 500 -s 65536"
  row "ib_atomic_bw -d DEV -x GID -p PORT -F -n 2000"
  row "rping -C 200 -V" "-c -a OTHER" "-s -a MINE"
  LIMIT=400 row "exchange --device DEV --gid-index GID --port PORT" "--seed ${SEED:-$RANDOM} --seconds 1 --tests ${TESTS:--ud,-rc.solicited} OTHER"
  say "the worker was killed $(wc -l <"$T/kills") times"
  CHOSEN=(none)
fi
for mtu_of_path in 1024 $((mtu > 4096 ? 4096 : 256)); do
  row "ibv_rc_pingpong -d DEV -g GID -p PORT -c -n 200 -s 20000 -m $mtu_of_path"
done
row "ibv_rc_pingpong -d DEV -g GID -p PORT -c -e -n 200"
row "ibv_uc_pingpong -d DEV -g GID -p PORT -c -n 200"
[[ -z ${WITH_UD:-} ]] || row "ibv_ud_pingpong -d DEV -g GID -p PORT -c -n 200 -s 1024"
row "ibv_srq_pingpong -d DEV -g GID -p PORT -c -n 200 -s 8000"
for verb in send write read atomic; do
  row "ib_${verb}_lat -d DEV -x GID -p PORT -F -n 200"
  size=
  [[ $verb == atomic ]] || size=" -s 65536"
  row "ib_${verb}_bw -d DEV -x GID -p PORT -F -n 200$size"
done
row "ib_send_bw -d DEV -x GID -p PORT -F -n 50 -s 1048576"
LIMIT=300 row "ib_write_bw -d DEV -x GID -p PORT -F -n 50 -s 8388608"
LIMIT=300 row "ib_read_bw -d DEV -x GID -p PORT -F -n 50 -s 8388608"
row "ib_write_bw -d DEV -x GID -p PORT -F -n 200 -b"
row "ib_write_bw -d DEV -x GID -p PORT -F -n 200 -q 4"
row "ib_write_lat -d DEV -x GID -p PORT -F -n 200 -c UC"
row "rping -C 20 -V -v" "-c -a OTHER" "-s -a MINE"
row "rping -C 5 -V -v -S 10000" "-c -a OTHER" "-s -a MINE"
row "ucmatose -c 4 -C 10" "-s OTHER"
row "udaddy -c 2 -C 10" "-s OTHER"
row "mckey -m 239.1.2.3 -b MINE" "-s"
row "ib_write_bw -F -n 200 -R -p PORT"
row "ib_send_lat -F -n 200 -R -p PORT"
LIMIT=400 row "exchange --device DEV --gid-index GID --port PORT" "--seed ${SEED:-$RANDOM} --tests ${TESTS:--ud} OTHER"

touch "$T/vm/end"
reap machine 60
say "the table"
cat "$T/table"
[[ ${#BAD[@]} -eq 0 ]] || fail "$(printf '%s\n' "${BAD[@]}")"
