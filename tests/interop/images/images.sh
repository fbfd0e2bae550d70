#!/bin/bash
# images.sh bullseye|trixie|sid direct|mediated [PROBE]: programs of another Debian release, with the
# libraries of that release around them, on this build's drop-in libraries and the host's daemon.
#
#     netns a                         netns b
#   +------------------+            +------------------+
#   | server           |    veth    |           client |   both in a root of that release, each in
#   |   va ------ eth0 |============| eth0 ------ vb   |   a mount namespace of its own
#   | 10.0.0.1         |            |         10.0.0.2 |
#   +------------------+            +------------------+
#
# With VRDMA_EVERY (tests/run --all) all that is packaged is run; without it, with bullseye alone, the
# part whose root is made in seconds.
here=$(realpath "$(dirname "$0")")
. "$here/../stack/lib.sh"
release=$1 mode=$2 probe=${3:-}
size=small
if [[ -n ${VRDMA_EVERY:-} ]]; then
  size=full
elif [[ $release != bullseye ]]; then
  skip "only with VRDMA_EVERY=1, which tests/run --all sets: its root takes minutes"
fi
setup
status=0
root=$("$here/root" "$release" "$size" 2>"$T/root.log") || status=$?
[[ $status -ne 77 ]] || skip "$(<"$T/root.log")"
[[ $status -eq 0 ]] || fail "no root: $(<"$T/root.log")"
mkdir -m 1777 "$T/files"
start_daemon
two_vdevices "$mode"
in_root=("$here/inside" "$root" "$T/lib" "$R" "$T/files")
SETTINGS=("${in_root[@]}")
version() { awk -v name="$1" '$1 == name || $1 == name "t64" { print $1, $2 }' "$root/packages"; }
has() { [[ -x $root/usr/bin/$1 ]]; }

say "$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' "$root/usr/lib/os-release"), its packages:" \
  "$(for name in libc6 libibverbs1 librdmacm1 perftest libfabric1 libucx0 python3-pyverbs; do
       version "$name"; done | paste -sd ',')"

check() { # WHAT COMMAND...
  local what=$1
  shift
  if exec_in va "${in_root[@]}" "$@" >"$T/check.log" 2>&1; then
    PASSED=$((PASSED + 1))
  else
    echo "FAILED: $what"
    tail -n 5 "$T/check.log"
    FAILED_RUNS=$((FAILED_RUNS + 1))
  fi
}

if [[ -n $probe && $release == bullseye ]]; then
  cp "$probe" "$T/files/probe.so"
  check "the C++ runtime and libc" env LD_PRELOAD=/tmp/probe.so true
  say "$(<"$T/check.log")"
  grep -q '^probe: .*: ok$' "$T/check.log" || fail "the probe says: $(<"$T/check.log")"
fi

cp "$here/load.sh" "$T/files/"
LIMIT=300 exec_in va "${in_root[@]}" /tmp/load.sh >"$T/load.log" 2>&1 || fail "load.sh: $(<"$T/load.log")"
read -r loaded all < <(tail -1 "$T/load.log")
say "ldd -r: $loaded of $all programs and modules can be loaded"
if [[ $loaded -ne $all || $all -lt 20 ]]; then
  sed '$d' "$T/load.log"
  fail "$((all - loaded)) of $all cannot be loaded"
fi

check ibv_devices ibv_devices
grep -qw va "$T/check.log" || fail "ibv_devices does not list va: $(<"$T/check.log")"
check ibv_devinfo ibv_devinfo -v -d va
grep -q PORT_ACTIVE "$T/check.log" || fail "va has no active port: $(<"$T/check.log")"
for transport in rc uc ud srq; do
  meet "ibv_${transport}_pingpong" ibv_${transport}_pingpong -n 200 -g "$INDEX_A"
done
meet ibv_xsrq_pingpong ibv_xsrq_pingpong -n 200 -g "$INDEX_A"
for run in "ib_write_lat -s 8" "ib_write_bw -s 65536" "ib_send_lat -s 8" "ib_send_bw -s 65536" \
  "ib_read_bw -s 65536" ib_atomic_lat; do
  # shellcheck disable=SC2086  # words
  meet "$run" $run -n 200 -x "$INDEX_A" -F
done
words=(ib_send_bw -R -s 4096 -n 200 -x "$INDEX_A" -F)
meet_cm "ib_send_bw -R" "${words[@]}" -- "${words[@]}" 10.0.0.1
meet_cm rping rping -s -a 10.0.0.1 -C 20 -- rping -c -a 10.0.0.1 -C 20
meet_cm ucmatose ucmatose -b 10.0.0.1 -- ucmatose -s 10.0.0.1
meet_cm udaddy udaddy -b 10.0.0.1 -- udaddy -s 10.0.0.1
meet_cm rstream rstream -b 10.0.0.1 -T v -C 20 -- rstream -s 10.0.0.1 -T v -C 20

if has fi_pingpong; then
  check "fi_info -p verbs" fi_info -p verbs
  SETTINGS=("${in_root[@]}" env FI_UNIVERSE_SIZE=16)
  PORT=$((PORT + 1))
  meet "fi_pingpong" fi_pingpong -B $PORT -P $PORT -p verbs -e msg -I 10
  PORT=$((PORT + 1))
fi
if has ucx_info; then
  check ucx_info ucx_info -d
  if ! grep -q rc_verbs "$T/check.log"; then
    say "UCX of this release is built without verbs"
    ! ls "$root"/usr/lib/*/ucx/libuct_ib.so* >/dev/null 2>&1 || fail "UCX does not see va"
  elif grep -q libmpi <(readelf -d "$root/usr/bin/ucx_perftest"); then
    say "ucx_perftest of this release runs by MPI only"
  else
    SETTINGS=("${in_root[@]}" env UCX_TLS=rc_verbs,ud_verbs,self)
    for run in tag_lat:8 ucp_put_lat:65536; do
      meet "ucx_perftest $run" ucx_perftest -p $PORT -t "${run%:*}" -s "${run#*:}" -n 50 -w 5
    done
  fi
fi
if [[ $size == full ]]; then
  # rdma-core's own tests of that release, of which no fewer may pass than did before.
  declare -A floor=([bullseye]=106 [trixie]=151 [sid]=184)
  mkdir "$T/files/rdma-core" "$T/files/rdma-core/tests"
  cp "$root"/usr/share/doc/rdma-core/tests/* "$T/files/rdma-core/tests/"
  gunzip -f "$T"/files/rdma-core/tests/*.gz 2>/dev/null || true
  cp "$here/../stack/run_pyverbs.py" "$T/files/"
  mkdir "$T/files/bin"
  cp "$BUILD/lib/vrdma/bin/rdma" "$T/files/bin/"
  LIMIT=280 exec_in va "${in_root[@]}" python3 /tmp/run_pyverbs.py /tmp/rdma-core/tests \
    /tmp/results --without "test_rss_traffic=work queues (ibv_create_wq) are not there" \
    --without "test_multi_process_alloc_dm=its processes cannot be made with Python 3.14" \
    --dev va --gid "$INDEX_A" >"$T/pyverbs.log" 2>&1 || fail "pyverbs did not come to its end"
  read -r passed failed skipped <"$T/files/results"
  say "rdma-core's tests of this release: $passed passed, $failed failed, $skipped skipped"
  if [[ $failed -ne 0 ]]; then
    sed -n '/^=====/,$p' "$T/pyverbs.log"
    FAILED_RUNS=$((FAILED_RUNS + 1))
  fi
  [[ $passed -ge ${floor[$release]} ]] || fail "only $passed passed; ${floor[$release]} did before"
fi
mkdir -p "$BUILD/stack"
printf '%s\t%s\t%s\t%s\t%s\t%s\n' "programs of $release ($size)" "$mode" $PASSED $FAILED_RUNS 0 \
  "ldd -r: $loaded of $all" >"$BUILD/stack/images-$release.$mode"
say "$PASSED programs passed, $FAILED_RUNS failed"
[[ $FAILED_RUNS -eq 0 ]] || fail "$FAILED_RUNS programs of $release failed"
