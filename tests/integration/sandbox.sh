#!/bin/bash
# sandbox.sh root|nobody: vrdma-sandbox, run by a user that owns only its programs.
#
#     pid, mount, IPC and network namespaces; without root: in a user namespace
#   +--------------------------------------------------------------------+
#   |  vrdmad      netns server               netns client (--pair)      |
#   |           +----------------+          +----------------+           |
#   |           | vrdma0 -- eth0 |== veth ==| eth0 -- vrdma1 |           |
#   |           +----------------+          +----------------+           |
#   +--------------------------------------------------------------------+
. "$(dirname "$0")/lib.sh"
user=$1
setup
[[ -x $BUILD/bin/vrdma-sandbox ]] || fail "vrdma-sandbox is not built"
mkdir -p "$T/tree/lib" "$T/work"
cp -r "$BUILD/bin" "$BUILD/sbin" "$T/tree/"
cp -r "$T/lib" "$T/tree/lib/vrdma"
cp -r "$BUILD/lib/vrdma/bin" "$BUILD"/lib/vrdma/vrdma-{bad-wire,pingpong} "$T/tree/lib/vrdma/"
chmod -R a+rX "$T/tree"
chmod 777 "$T/work"
SANDBOX=$T/tree/bin/vrdma-sandbox
sane=(PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ LC_ALL=C)
for word in "${ENVIRONMENT[@]}"; do  # a sanitizer's
  case $word in LD_PRELOAD=* | ASAN_OPTIONS=*) sane+=("$word") ;; esac
done
read -ra as_user <<<"$(user_prefix "$user")"
box() { (cd "$T/work" && exec timeout -k 5 "${LIMIT:-60}" "${as_user[@]}" env -i "${sane[@]}" "$SANDBOX" "$@"); }
equals() { # WHAT GOT WANTED
  [[ $2 == "$3" ]] || fail "$1 is '$2', not '$3'"
}
ends_with() { # STATUS COMMAND...: its words are in $T/words.log
  local status=0
  "${@:2}" >"$T/words.log" 2>&1 || status=$?
  no_sanitizer "${*:2}" "$T/words.log"
  equals "the status of ${*:2}" "$status" "$1"
}
says() { grep -qF -- "$1" "$T/words.log" || { cat "$T/words.log"; fail "it does not say '$1'"; }; }
# The mounts of a sandbox; other tests make other mounts meanwhile.
mounts() { awk '$5 ~ "^/(dev|sys|proc)(/|$)" || /vrdma-sandbox-/' /proc/self/mountinfo; }
mounts_before=$(mounts)
dev_before=$(ls -A /dev/infiniband 2>&1 || true)
box -- true >"$T/first.log" 2>&1 || {
  grep 'cannot make a user namespace' "$T/first.log" && [[ $user != root ]] && skip "$(cat "$T/first.log")"
  cat "$T/first.log"
  fail "no sandbox"
}

say "a command sees its vdevice, and is who it was"
equals "the list" "$(box -- ibv_devices | sed 1,2d | awk '{print $1}' | xargs)" vrdma0
equals "the class directory" "$(box -- ls /sys/class/infiniband /dev/infiniband | grep -c '^vrdma0$')" 2
equals "the user" "$(box -- id -u)" "$("${as_user[@]}" id -u)"
equals "the user with --root" "$(box --root -- id -u)" 0
box --root -- ip link set eth0 mtu 1400 || fail "--root may not change the interface"
equals "GID 1" "$(box -- ibv_devinfo -v | sed -nE 's/^\s*GID\[ *1\]:\s*([^,]*),.*/\1/p')" ::ffff:10.0.0.1
box -- ibv_devinfo | grep -q PORT_ACTIVE || fail "the port is not active"
equals "rdma link" "$(box -- rdma link | xargs)" "link vrdma0/1 state ACTIVE physical_state LINK_UP netdev eth0"
equals "a counter" "$(box -- cat /sys/class/infiniband/vrdma0/ports/1/counters/port_rcv_data)" 0
equals "three vdevices" "$(box --vdevices 3 -- ibv_devices | sed 1,2d | awk '{print $1}' | xargs)" "vrdma0 vrdma1 vrdma2"
box --vdevices 3 -- ping -c1 -W2 -I eth0 10.0.0.3 >/dev/null 2>&1 || true  # where ping may run
equals "the quota" "$(box --quota qp=7 -- ibv_devinfo -v | sed -nE 's/^\s*max_qp:\s*//p')" 7
box -- vrdmactl vdev list | grep -q '^vrdma0 *ACTIVE' || fail "vrdmactl does not work in the sandbox"

if [[ -x $BUILD/sbin/vrdmad-worker ]]; then
  say "the worker of a sandbox has no capability, may gain none, and makes few system calls"
  # It confines itself after its start.
  # shellcheck disable=SC2016
  equals "what it may do" "$(box -- sh -c 'ibv_asyncwatch -d vrdma0 >/dev/null & i=0
    until grep -q "^Seccomp:.2" "/proc/$(pgrep -x vrdmad-worker)/status" 2>/dev/null || [ $((i += 1)) -gt 300 ]; do sleep 0.1; done
    awk "/^(CapEff|CapBnd|NoNewPrivs|Seccomp):/ { print \$2 }" "/proc/$(pgrep -x vrdmad-worker)/status"
    kill $!' | xargs)" "0000000000000000 0000000000000000 1 2"
fi

say "streams, statuses, mistakes"
equals "stdin to stdout" "$(echo hello | box -- cat)" hello
ends_with 7 box -- sh -c 'exit 7'
ends_with 137 box -- sh -c 'kill -9 $$'
ends_with 127 box -- no-such-program
ends_with 126 box -- /etc/passwd
ends_with 2 box
ends_with 2 box --pair -- true
says "--pair wants two commands"
ends_with 125 box --quota qp=x -- true
says "quota qp: 'x' is not a number"
ends_with 125 box --log /nowhere/log -- true
box --log "$T/work/log" -- true
grep -q 'is ready in' "$T/work/log" || fail "--log gets no log"
box --help >/dev/null || fail "--help"

say "pairs"
for tenants in "" --two-tenants; do
  ends_with 0 box --pair $tenants -- ibv_rc_pingpong -g 1 -n 200 -- ibv_rc_pingpong -g 1 -n 200 10.0.0.1
  equals "both report" "$(grep -c '200 iters' "$T/words.log")" 2
  ends_with 0 box --pair $tenants -- ib_write_bw -n 500 -- ib_write_bw -n 500 10.0.0.1
  ends_with 0 box --pair $tenants -- rping -s -V -C 3 -- rping -c -v -V -C 3 -a 10.0.0.1
  says "ping data: rdma-ping-2"
done
# Which side executes the work requests: the programs of one tenant, the daemon between two.
worked() { box --pair "$@" -- ib_send_bw -n 100 -- sh -c 'ib_send_bw -n 100 10.0.0.1 >&2 && vrdmactl -o json stats vrdma1' \
  2>/dev/null | tr -d ' \n' | grep -oE '"name":"work_requests_connected","value":[0-9]+' | cut -d: -f3; }
equals "what the daemon does for one tenant" "$(worked)" 0
[[ $(worked --two-tenants) -ge 100 ]] || fail "two tenants have direct links"
began=$SECONDS
ends_with 3 box --pair -- sleep 1000 -- sh -c 'exit 3'
says "note: the server, sleep, does not listen"
[[ $((SECONDS - began)) -lt 40 ]] || fail "a server that does not end is waited for"
ends_with 4 box --pair -- sh -c 'exit 4' -- true
says "the server ended with status 4"

say "the demonstration"
ends_with 2 box --demo -- true
says "--demo stands alone"
if [[ -w /dev/net/tun ]]; then
  ends_with 0 box --demo
  equals "what it measures" "$(demo_rows "$T/words.log")" 3
fi

say "a bad network between the two"
ends_with 2 box --loss 1 -- true
says "want --pair"
# shellcheck disable=SC2016
no_tun() { unshare --mount --propagation private bash -c 'mount -t tmpfs tmpfs /dev/net && exec "$@"' - "${as_user[@]}" env -i "${sane[@]}" "$SANDBOX" "$@"; }
if [[ -d /dev/net ]] && no_tun -- true >/dev/null 2>&1; then
  ends_with 125 no_tun --pair --loss 1 -- true -- true
  says "cannot open /dev/net/tun (No such file or directory): load the module tun, or give the container that device"
fi
if [[ -w /dev/net/tun ]]; then
  # Programs that wait for each other at their end: where the last acknowledgement is lost to one that has ended already,
  # its peer gets RETRY_EXC, as of any adapter.
  # shellcheck disable=SC2016
  ends_with 0 box --pair --loss 5 --reorder 10 --duplicate 5 --corrupt 1 --delay 1 -- ib_send_lat -F -n 200 -s 30000 -- \
    sh -c 'ib_send_lat -F -n 200 -s 30000 10.0.0.1 && vrdmactl stats vrdma1 >&2'
  for event in out_of_sequence duplicate_request retransmitted; do
    grep -qE "network_events_$event +[1-9]" "$T/words.log" || fail "the network is good: no $event"
  done
  ends_with 0 box --pair --loss 2 -- rping -s -V -C 3 -- rping -c -v -V -C 3 -a 10.0.0.1
  says "ping data: rdma-ping-2"
fi

say "signals reach the command"
box -- sh -c 'trap "exit 9" TERM; echo ready; while :; do sleep 0.1; done' >"$T/trap.log" &
PID[trap]=$!
wait_until 20 grep -q ready "$T/trap.log" || fail "the command does not start"
pkill -TERM -P "${PID[trap]}" || kill -TERM "${PID[trap]}"
reap trap 10
equals "the status of a command that was told to end" "$REAPED" 9

# nothing_left MARK: no process with it is left.
nothing_left() { ! pgrep -f "^sleep $1" >/dev/null; }
kill_the_sandbox() { # MARK [COMMAND...]: of a program in another session; what the sandbox runs in
  (cd "$T/work" && exec "${@:2}" "${as_user[@]}" env -i "${sane[@]}" "$SANDBOX" -- \
    sh -c "setsid sleep $1 & sleep $1") >"$T/killed.log" 2>&1 &
  PID[killed]=$!
  wait_until 20 pgrep -f "^sleep $1" >/dev/null || fail "the command does not start"
  kill -9 "${PID[killed]}"
  wait_until 10 nothing_left "$1" || fail "processes of a killed sandbox stay: $(pgrep -af "sleep $1")"
  unset 'PID[killed]'
}
say "kill -9 leaves nothing, nor does what the command leaves running"
kill_the_sandbox "77777.$$"
box -- sh -c "setsid sleep 66666.$$ >/dev/null 2>&1 &"
wait_until 5 nothing_left "66666.$$" || fail "what the command started goes on without the sandbox"
no_daemon() { ! pgrep -f "$T/tree/sbin/vrdmad" >/dev/null; }
wait_until 5 no_daemon || fail "a daemon of a sandbox stays"

say "in a container, where parts of /proc and /sys are covered"
covered=(unshare --mount --propagation private bash -c '
  for dir in /proc/bus /proc/scsi /proc/acpi /proc/tty; do [[ -d $dir ]] && mount -t tmpfs none $dir && break; done
  for dir in /sys/firmware /sys/block; do [[ -d $dir ]] && mount -t tmpfs none $dir && break; done
  exec "$@"' covered)
if [[ $user != root ]] && unshare --mount --propagation private true 2>/dev/null; then
  box_there() { "${covered[@]}" timeout -k 5 60 "${as_user[@]}" env -i "${sane[@]}" "$SANDBOX" "$@"; }
  equals "the list" "$(box_there -- ibv_devices | sed 1,2d | awk '{print $1}')" vrdma0
  equals "the class directory" "$(box_there -- ls /sys/class/infiniband)" vrdma0
  [[ $(box_there -- sh -c 'echo $PPID') -ne 1 ]] || fail "there is a pid namespace: nothing is tested"
  ends_with 0 box_there --pair -- ib_write_lat -n 100 -- ib_write_lat -n 100 10.0.0.1
  box_there -- sh -c "setsid sleep 55555.$$ >/dev/null 2>&1 &"
  wait_until 5 nothing_left "55555.$$" || fail "what the command started goes on without the sandbox"
  kill_the_sandbox "44444.$$" "${covered[@]}"
  wait_until 5 no_daemon || fail "a daemon of a sandbox stays"
fi

say "limits that are too small are named at once, and leave nothing"
limited() { # LIMIT, SENTENCE: as of ulimit
  # shellcheck disable=SC2016
  ends_with 125 "${as_user[@]}" env -i "${sane[@]}" bash -c 'ulimit $1 && exec timeout -k 5 60 "${@:2}"' - "$1" "$SANDBOX" --pair -- \
    ibv_rc_pingpong -g 1 -- ibv_rc_pingpong -g 1 10.0.0.1
  says "vrdma-sandbox: $2"
  equals "what $1 prints" "$(grep -c . "$T/words.log")" 1
  no_daemon || fail "a daemon of a sandbox stays"
}
limited "-n 20" "ulimit -Hn is 20, and vrdmad needs 320 open files for this sandbox"
limited "-n 319" "ulimit -Hn is 319, and vrdmad needs 320 open files for this sandbox"
limited "-f 1000" "ulimit -f is 1000 KiB, and vrdmad makes sparse files"
if [[ -z ${VRDMA_TEST_PRELOAD:-} ]]; then  # a sanitizer needs more
  limited "-v 4000000" "ulimit -v is 4000000 KiB, and a process of this sandbox may need 20971520 KiB of address space"
  limited "-d 100000" "ulimit -d is 100000 KiB, and vrdmad needs 262144 KiB of data"
fi
if [[ $user != root ]]; then  # whose processes are not counted
  limited "-u 20" "no more than "
  says "processes and threads can be started here, and a sandbox needs "
fi
# What is just enough is enough.
for limit in "-n 320" "-v 20971520"; do
  [[ -z ${VRDMA_TEST_PRELOAD:-} || $limit == -n* ]] || continue
  # shellcheck disable=SC2016
  ends_with 0 "${as_user[@]}" env -i "${sane[@]}" bash -c 'ulimit $1 && exec timeout -k 5 60 "${@:2}"' - "$limit" "$SANDBOX" --pair --two-tenants -- \
    ibv_rc_pingpong -g 1 -- ibv_rc_pingpong -g 1 10.0.0.1
done

say "obstacles are named"
# Root of a user namespace without capabilities: it may set that namespace's limits, but needs
# another namespace.
ends_with 125 "${as_user[@]}" unshare -Ur env -i "${sane[@]}" sh -c "echo 0 >/proc/sys/user/max_user_namespaces
  exec setpriv --bounding-set=-all --inh-caps=-all $SANDBOX -- true"
says "the sysctl user.max_user_namespaces is 0"
forbid() { # SYSTEM CALLS, COMMAND...: as the seccomp profile of a container engine
  "${as_user[@]}" env -i "${sane[@]}" /usr/bin/python3 -c '
import errno, os, seccomp, sys
rules = seccomp.SyscallFilter(seccomp.ALLOW)
for call in sys.argv[1].split():
    rules.add_rule(seccomp.ERRNO(errno.EPERM), call)
rules.load()
os.execvp(sys.argv[2], sys.argv[2:])' "$@"
}
if /usr/bin/python3 -c 'import seccomp' 2>/dev/null; then
  ends_with 125 forbid unshare "$SANDBOX" -- true
  says "--security-opt seccomp=unconfined"
  ends_with 125 forbid mount "$SANDBOX" -- true
  says "cannot mount in a user namespace"
  if [[ -x $BUILD/sbin/vrdmad-worker ]]; then
    say "workers have an empty root where chroot(2) is forbidden, as in a container without CAP_SYS_CHROOT"
    ends_with 0 forbid chroot "$SANDBOX" --pair --two-tenants -- ibv_rc_pingpong -g 1 -n 200 -- ibv_rc_pingpong -g 1 -n 200 10.0.0.1
    equals "both report" "$(grep -c '200 iters' "$T/words.log")" 2
    say "a worker that cannot start ends the attempt to open, with the reason"
    # shellcheck disable=SC2016
    ends_with 255 forbid "chroot pivot_root" "$SANDBOX" -- sh -c 'timeout 30 ibv_devinfo; echo "devinfo $?"
    vrdmactl doctor; vrdmactl vdev show vrdma0; exit 255'
    says "devinfo 1"
    says "vrdma: a vdevice cannot be used: vrdmad cannot start the worker that would serve this program"
    says "problem  worker   vrdmad cannot serve programs of vrdma0: start a worker: chroot(2) is forbidden, and so is the empty mount namespace in its place"
    says "no worker      start a worker: chroot(2) is forbidden"
    says "/server/vrdma0: start a worker: chroot(2) is forbidden"
  fi
  ends_with 0 forbid userfaultfd "$SANDBOX" -- true
  says "note: userfaultfd(2) fails (Operation not permitted), so programs do not access each other's memory directly"
else
  say "python3-seccomp is not installed: no filter"
fi

say "the host is as it was"
equals "mounts" "$(mounts)" "$mounts_before"
equals "/dev/infiniband" "$(ls -A /dev/infiniband 2>&1 || true)" "$dev_before"
