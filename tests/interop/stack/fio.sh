#!/bin/bash
# fio.sh direct|mediated: fio's engine rdma writes into its server's memory and reads from it.
#
#     netns a                         netns b
#   +------------------+            +------------------+
#   | fio, rw=read     |    veth    |    fio, rw=write |   the side that reads is the server;
#   |   va ------ eth0 |============| eth0 ------ vb   |   the client says what is done (verb)
#   | 10.0.0.1         |            |         10.0.0.2 |
#   +------------------+            +------------------+
#
# Without verb=send: fio accepts connections with an RNR retry count of 0, so that it ends, there and on any
# adapter, as soon as a message comes before the server has posted a receive.
. "$(dirname "$0")/lib.sh"
mode=$1
setup
command -v fio >/dev/null || tell_and_skip fio "$mode" 4 "fio is not installed"
start_daemon
two_vdevices "$mode"
for run in write:1:65536 write:16:1048576 read:1:65536 read:16:1048576; do
  IFS=: read -r verb depth size <<<"$run"
  words=(fio --ioengine=rdma --port=$PORT --bs="$size" --size=64m)
  meet_cm "fio $run" "${words[@]}" --name=server --rw=read --iodepth=16 -- \
    "${words[@]}" --name=client --rw=write --hostname=10.0.0.1 --verb="$verb" --iodepth="$depth" --iodepth_batch_complete=1
  grep -q 'io=64.0MiB' "$T/client.log" || { echo "FAILED: fio $run moved less"; FAILED_RUNS=$((FAILED_RUNS + 1)); }
done
tell fio "$mode" $PASSED $FAILED_RUNS 0 "verb=write, verb=read"
[[ $FAILED_RUNS -eq 0 ]] || fail "$FAILED_RUNS runs of fio failed"
