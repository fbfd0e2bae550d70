#!/bin/bash
# profile.sh direct|mediated: programs work with the capabilities and behind the seccomp profile that Podman and
# CRI-O give to containers. It forbids userfaultfd(2), as Docker's does, and vmsplice(2).
. "$(dirname "$0")/lib.sh"
mode=$1
setup
profile=/usr/share/containers/seccomp.json
[[ -e $profile ]] || tell_and_skip "container profile" "$mode" 1 "golang-github-containers-common is not installed"
/usr/bin/python3 -c 'import seccomp' 2>/dev/null ||
  tell_and_skip "container profile" "$mode" 1 "python3-seccomp is not installed"
start_daemon
two_vdevices "$mode"
cp "$(dirname "$0")/with_profile.py" "$T/"
contained=(/usr/bin/python3 "$T/with_profile.py" "$profile")

say "the profile holds"
exec_in va "${contained[@]}" /usr/bin/python3 -c '
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
sys.exit(libc.syscall(323, 1) >= 0)' || fail "userfaultfd(2) is not forbidden"

SETTINGS=("${contained[@]}")
meet ibv_rc_pingpong ibv_rc_pingpong -n 1000 -g 1
SETTINGS=("${contained[@]}" env UCX_TLS=rc_verbs,ud_verbs,self)
for run in tag_lat:8 tag_bw:1048576 ucp_put_lat:65536; do
  meet "UCX $run" ucx_perftest -p "$PORT" -t "${run%:*}" -s "${run#*:}" -n 50 -w 5
done
tell "container profile" "$mode" $PASSED $FAILED_RUNS 0
[[ $FAILED_RUNS -eq 0 ]] || fail "$FAILED_RUNS programs failed"

say "memory is reached, because calls that change it cannot be seen"
cp "$BUILD/tests/integration/vrdma_standstill" "$T/standstill"
exec_in va "${contained[@]}" "$T/standstill" falls va unseen || fail "it is in place"
ctl vdev show va | grep -qE '^ *reached .*unseen' || fail "vdev show says: $(ctl vdev show va)"
exec_in va "${contained[@]}" "$T/standstill" race va 4 1048576 || fail "a write was lost"

[[ -c /dev/userfaultfd ]] || { say "this host has no /dev/userfaultfd"; exit 0; }
say "a vdevice that allows userfaultfd puts it in place"
loose a eth1
vdev_create vu a eth1 --allow userfaultfd
exec_in vu "${contained[@]}" "$T/standstill" falls vu nothing || fail "it is reached: $(ctl vdev show vu | grep ' reached ')"
