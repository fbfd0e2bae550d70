#!/bin/bash
# dlvsym.sh direct|mediated: a program that loads libibverbs at run time, as NCCL does.
#
#     netns a                         netns b
#   +------------------+            +------------------+
#   | dlvsym           |    veth    |           dlvsym |   dlopen("libibverbs.so.1"), dlvsym of NCCL's
#   |   va ------ eth0 |============| eth0 ------ vb   |   list, sysfs, RDMA WRITE with immediate
#   | 10.0.0.1         |            |         10.0.0.2 |
#   +------------------+            +------------------+
. "$(dirname "$0")/lib.sh"
mode=$1
setup
start_daemon
two_vdevices "$mode"
# Against verbs.h alone: it must not be linked with libibverbs.
gcc -O1 -Wall -Wextra -Werror -o "$T/dlvsym" "$(dirname "$0")/dlvsym.c"
ldd "$T/dlvsym" | grep -q ibverbs && fail "the program is linked with libibverbs"

exec_behind server va "$T/dlvsym" va $PORT
wait_until 20 listens server || fail "the server does not listen"
exec_behind client vb "$T/dlvsym" vb $PORT 10.0.0.1
both_end "dlvsym"
for side in server client; do
  grep -qx 'others 39' "$T/$side.log" || fail "$side: a symbol of UCX, libfabric, nvshmem or Mooncake is missing"
  grep -qx 'symbols 26' "$T/$side.log" || fail "$side: a symbol of NCCL's list is missing"
done
tell "dlvsym (as NCCL)" "$mode" $PASSED $FAILED_RUNS 0
[[ $FAILED_RUNS -eq 0 ]] || fail "dlvsym failed"
