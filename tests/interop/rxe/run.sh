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
# machine/start starts the machine, or the program that VRDMA_VM names, by the same options. MTU, 4200 by default, is that of
# the network.
#
# With KILLS=1 the programs run longer, and the vdevice's worker is killed every 1.2 s meanwhile. The next one wakes
# who waits for events, so rc.solicited of exchange is left out.
. "$(dirname "$0")/../../integration/lib.sh"
. "$(dirname "$0")/../machine/programs.sh"
here=$(realpath "$(dirname "$0")")
EXCHANGE=${VRDMA_EXCHANGE:-$BUILD/tests/interop/vrdma_exchange}
mtu=${MTU:-4200}
setup
[[ -z ${KILLS:-} ]] || WORKERS_END=1
prepare_machine "$EXCHANGE"
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

boot --netns "$(ns w)" --bridge bridge --tap tap --mtu "$mtu" --ip 10.0.0.2/24 --module rdma_rxe \
  --timeout "${VM_LIMIT:-1500}" -- "$here/inside" "$T/vm" 10.0.0.2/24
DEVICE_B=rxe0
INDEX_B=$(<"$T/vm/index")
say "Linux $(<"$T/vm/kernel"), perftest $(dpkg-query -W -f '${Version}' perftest), MTU $mtu"

kill_workers() {
  while sleep 1.2; do
    if kill -9 $(workers) 2>/dev/null; then echo >>"$T/kills"; fi
  done
}
stop_killer() {
  kill "${PID[killer]}"
  wait "${PID[killer]}" 2>/dev/null || true
  unset "PID[killer]"
}

if [[ -n ${KILLS:-} ]]; then
  begin_beside() { kill_workers & PID[killer]=$!; }
  end_beside() { stop_killer; }
fi

PROGRAMS=("$@")
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
  PROGRAMS=(none)
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

shut_down
verdict
