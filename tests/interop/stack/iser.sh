#!/bin/bash
# iser.sh direct|mediated: a disk of tgt, reached with iSER by the programs of libiscsi.
#
#     netns a                         netns b
#   +------------------+            +------------------+
#   | tgtd             |    veth    | iscsi-inq, -perf |
#   |   va ------ eth0 |============| eth0 ------ vb   |
#   | 10.0.0.1:3260    |            |         10.0.0.2 |
#   +------------------+            +------------------+
#
# tgtd has a target when the test ends, and so ends by SIGKILL alone.
# Over iSER tgt admits an initiator only if both its address and its name are bound; by TCP one is enough.
. "$(dirname "$0")/lib.sh"
mode=$1
setup
{ command -v tgtd && command -v iscsi-inq; } >/dev/null ||
  tell_and_skip "tgt and libiscsi" "$mode" 3 "tgt or libiscsi-bin is not installed"
start_daemon
two_vdevices "$mode"
target=iqn.2026-01.org.vrdma:disk initiator=iqn.2026-01.org.vrdma:client
export TGT_IPC_SOCKET=$T/tgt
admin() { timeout 20 tgtadm -C 77 --lld iser "$@"; }
ready() { admin --mode sys --op show >/dev/null 2>&1; }

truncate -s 64M "$T/disk"
exec_behind target va env TGT_IPC_SOCKET="$T/tgt" tgtd -f -C 77 --iscsi portal=10.0.0.1:3260
wait_until 20 ready || fail "tgtd is not ready: $(<"$T/target.log")"
admin --mode target --op new --tid 1 --targetname $target
admin --mode logicalunit --op new --tid 1 --lun 1 --backing-store "$T/disk"
admin --mode target --op bind --tid 1 --initiator-address ALL
admin --mode target --op bind --tid 1 --initiator-name $initiator

check() { # EXPECTED PROGRAM ARGUMENTS...
  if LIMIT=30 exec_in vb "${@:2}" -i $initiator "iser://10.0.0.1:3260/$target/1" >"$T/client.log" 2>&1 && grep -q "$1" "$T/client.log"; then
    PASSED=$((PASSED + 1))
  else
    echo "FAILED: $2"
    tail -n 5 "$T/client.log" "$T/target.log"
    FAILED_RUNS=$((FAILED_RUNS + 1))
  fi
}
check 'Product:VIRTUAL-DISK' iscsi-inq
check 'Total size:67108864' iscsi-readcapacity16
check 'iops average [1-9]' iscsi-perf -b 8 -m 4 -t 1
tell "tgt and libiscsi" "$mode" $PASSED $FAILED_RUNS 0 "$(grep -oE 'iops average [0-9]+' "$T/client.log" | tail -1 || true)"
[[ $FAILED_RUNS -eq 0 ]] || fail "$FAILED_RUNS programs of libiscsi failed"
