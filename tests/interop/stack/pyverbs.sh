#!/bin/bash
# pyverbs.sh direct: rdma-core's own tests, which use a device with itself.
#
#     netns a                 netns b
#   +-----------+           +-----------+
#   | va -- eth0|== veth ===|eth0 -- vb |   vb does nothing: it gives eth0 its carrier
#   +-----------+           +-----------+
. "$(dirname "$0")/lib.sh"
mode=$1
floor=157  # passed; fewer are a mistake
huge_tests=3
setup
/usr/bin/python3 -c 'import pyverbs' 2>/dev/null ||
  tell_and_skip pyverbs "$mode" 273 "python3-pyverbs is not installed"

# As the package rdma-core has them; where packages are installed without their documentation, from
# the package itself.
mkdir -p "$T/rdma-core/tests"
tests=/usr/share/doc/rdma-core/tests
if [[ ! -f $tests/run_tests.py ]]; then
  (cd "$T" && apt-get download rdma-core && dpkg -x rdma-core_*.deb package) >"$T/apt.log" 2>&1 ||
    tell_and_skip pyverbs "$mode" 273 "neither installed nor to be downloaded: rdma-core's tests"
  tests=$T/package$tests
fi
cp "$tests"/* "$T/rdma-core/tests/"
gunzip -f "$T"/rdma-core/tests/*.gz

start_daemon
two_vdevices "$mode" --allow raw-packet
# The tests send frames from an address of their own, and a vdevice only from that of its netdev.
own_address() { ctl vdev show va | grep fe80::268a:7ff:fea5:28c8 >/dev/null; }
ip_in a link set eth0 address 24:8a:07:a5:28:c8
wait_until 10 own_address || fail "va does not follow the address of its netdev"
INDEX_A=$(gid_index a va 10.0.0.1)
without=(--without "test_rss_traffic=work queues (ibv_create_wq) are not there")
# Some tests want huge pages, and are skipped where there are none.
huge=/proc/sys/vm/nr_hugepages
huge_before=$(cat $huge)
# Others may use some meanwhile, and where memory is in pieces the kernel finds fewer.
[[ $huge_before -gt 0 ]] || { echo 1 >/proc/sys/vm/compact_memory && echo 64 >$huge; } 2>/dev/null || true
if [[ $(awk '$1 == "HugePages_Free:" { n += $2 } $1 == "HugePages_Rsvd:" { n -= $2 } END { print n }' /proc/meminfo) -lt 16 ]]; then
  without+=(--without "_huge_=the kernel has not enough huge pages")
  floor=$((floor - huge_tests))
fi
status=0
LIMIT=100 exec_in va /usr/bin/python3 "$(realpath "$(dirname "$0")")/run_pyverbs.py" \
  "$T/rdma-core/tests" "$T/results" "${without[@]}" --dev va --gid "$INDEX_A" >"$T/pyverbs.log" 2>&1 ||
  status=$?
echo "$huge_before" >$huge || true
[[ $status -eq 0 ]] || fail "pyverbs did not come to its end"

read -r passed failed skipped <"$T/results"
tell pyverbs "$mode" "$passed" "$failed" "$skipped" "rxe: 86, 1, 186"
sed 1d "$T/results" | tee "$BUILD/stack/pyverbs.classes"
if [[ $failed -ne 0 ]]; then
  sed -n '/^=====/,$p' "$T/pyverbs.log"
  fail "$failed of rdma-core's tests failed"
fi
[[ $passed -ge $floor ]] || fail "only $passed of rdma-core's tests passed; $floor did before"
