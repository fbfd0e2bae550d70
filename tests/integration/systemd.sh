#!/bin/bash
# systemd.sh: the Debian packages under systemd, in a copy of this host with namespaces of its own.
#
#     the copy (process 1: systemd)       netns red             netns blue
#   +-----------------------------+     +------------+        +-------------+
#   | dpkg -i, systemctl start,   |     | red0 -- e0 |= veth =| e0 -- blue0 |
#   | restart, kill               |     +------------+        +-------------+
#   +-----------------------------+
. "$(dirname "$0")/lib.sh"
setup
SYSTEMD=/lib/systemd/systemd
[[ -x $SYSTEMD ]] || skip "systemd is not installed"
if mountpoint -q /sys/fs/cgroup/systemd; then group=/sys/fs/cgroup/systemd; else group=/sys/fs/cgroup; fi
group+=/vrdma-$$
mkdir "$group" 2>/dev/null || skip "there is no control group for systemd here"
remove_group() {
  [[ ! -s $T/init ]] || kill -9 "$(<"$T/init")" 2>/dev/null
  wait 2>/dev/null
  groups -exec rmdir {} + 2>/dev/null
}
# groups EXPRESSION: find(1) in the groups of systemd and its units, which are in each hierarchy.
groups() { find /sys/fs/cgroup -depth -type d -path "*/vrdma-$$*" "$@"; }
trap 'status=$?; command=$BASH_COMMAND; remove_group; finish "$status" "$command"' EXIT
unshare --mount --pid --fork --propagation private true 2>/dev/null ||
  skip "/ is no mount point (a chroot), so that mounts could not be kept to the test"

say "build"
mkdir "$T/copy"
build_packages

say "boot"
cat >"$T/boot" <<'BOOT'
set -euo pipefail
copy=$1 packages=$2 group=$3 systemd=$4
copy_host "$copy"
root=$copy/root
cp "$packages"/*.deb "$root/tmp"
rm -f "$root/var/lib/man-db/auto-update"
chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
  sh -c 'dpkg --force-unsafe-io -i /tmp/*.deb'
printf '[Unit]\nRequires=vrdmad.service\n' >"$root/etc/systemd/system/vrdma-test.target"
mkdir "$root/etc/systemd/system/vrdmad.service.d"
printf '[Service]\nStandardOutput=append:/tmp/vrdmad.log\nStandardError=append:/tmp/vrdmad.log\n' \
  >"$root/etc/systemd/system/vrdmad.service.d/log.conf"
# As on a host: the unit's mount namespace learns of network namespaces that are made later.
mount --make-rshared "$root"
echo $$ >"$group/cgroup.procs"
exec chroot "$root" /usr/bin/env -i container=vrdma PATH=/usr/sbin:/usr/bin:/sbin:/bin SYSTEMD_LOG_TARGET=console \
  "$systemd" --system --unit=vrdma-test.target --show-status=0
BOOT
export -f copy_host
unshare --mount --pid --fork --kill-child --uts --ipc --net --propagation private \
  bash "$T/boot" "$T/copy" "$T/packages" "$group" "$SYSTEMD" >"$T/boot.log" 2>&1 </dev/null &
PID[boot]=$!
boots() {
  ended "${PID[boot]}" && fail "systemd does not start: $(tail -n 5 "$T/boot.log")"
  pgrep -P "${PID[boot]}" >"$T/init" && [[ $(readlink "/proc/$(<"$T/init")/exe") == */systemd ]]
}
wait_until 60 boots || fail "systemd does not start"
init=$(<"$T/init")
inside() { timeout 60 nsenter --target "$init" --all --root --wdns=/ env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }
active() { [[ $(inside systemctl is-active vrdmad) == active ]]; }
wait_until 60 active || fail "the unit is not active: $(inside systemctl status vrdmad; inside cat /tmp/vrdmad.log)"
main() { inside systemctl show -p MainPID --value vrdmad; }

say "the daemon is the user of the package"
[[ $(inside stat -c %U "/proc/$(main)/fd" /var/lib/vrdma /var/lib/vrdma/state.db /run/vrdma | xargs) == "root vrdma vrdma vrdma" ]] ||
  fail "files belong to others: $(inside stat -c '%U %n' /var/lib/vrdma /var/lib/vrdma/state.db /run/vrdma)"
inside grep -q "^Uid:.$(inside id -u vrdma)" "/proc/$(main)/status" || fail "it is another user"
# That this machine permits fewer open files than LimitNOFILE= asks for is no fault.
if inside grep -E 'warning|error' /tmp/vrdmad.log | grep -v 'may have [0-9]* open files'; then fail "it complains"; fi

say "use"
inside ip netns add red
inside ip netns add blue
inside ip -n red link add e0 type veth peer name e0 netns blue
for n in red:1 blue:2; do
  inside ip -n "${n%:*}" address add "10.0.0.${n#*:}/24" dev e0
  inside ip -n "${n%:*}" link set e0 up
  inside vrdmactl vdev create "${n%:*}0" --netns "${n%:*}" --netdev e0 --tenant "${n%:*}" --fabric shared >/dev/null
done
program() { # NAME VDEVICE COMMAND...
  local name=$1 vdevice=$2
  shift 2
  nsenter --target "$init" --all --root --wdns=/ env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    vrdmactl exec "$vdevice" -- "$@" >"$T/$name.log" 2>&1 </dev/null &
  PID[$name]=$!
}
sessions() { [[ $(inside vrdmactl vdev list -o json | grep -c '"sessions": 1,') -eq 2 ]]; }
program server red0 ib_write_bw -d red0 -D 40 -s 8 --report_gbits
waits() { inside ip netns exec red ss -Hltn "sport = :$PORT" | grep -q .; }
wait_until 20 waits || fail "ib_write_bw does not listen: $(<"$T/server.log")"
program client blue0 ib_write_bw -d blue0 -D 40 -s 8 --report_gbits 10.0.0.1
wait_until 20 sessions || fail "there are no sessions: $(<"$T/client.log")"

inside rm /etc/cdi/vrdma.json
say "its worker has a control group below that of the service"
worker=$(inside pgrep -xo vrdmad-worker)
inside grep 'vrdmad.service/worker-' "/proc/$worker/cgroup" || fail "it is in $(inside cat "/proc/$worker/cgroup" | xargs)"

# More often than systemd starts a service by default (DefaultStartLimitBurst=, systemd-system.conf(5)).
say "a restart, and the deaths of the daemon, its broker and its stopper, cost no session"
replaced() { active && [[ $(main) != "$old" ]] && sessions; }
for how in restart daemon broker stopper daemon daemon daemon; do
  old=$(main)
  case $how in
    restart) inside systemctl restart vrdmad ;;
    daemon) inside kill -9 "$old" ;;
    *) inside sh -c "for pid in \$(pgrep -P $old); do
      [ \"\$(cat /proc/\$pid/comm)\" != vrdmad-$how ] || kill -9 \$pid; done" ;;
  esac
  wait_until 20 replaced || fail "$how: $(inside systemctl status vrdmad; inside tail -n 20 /tmp/vrdmad.log)"
done
for side in client server; do
  reap $side 90
  [[ $REAPED -eq 0 ]] || fail "the $side ends with status $REAPED: $(<"$T/$side.log")"
done
inside test -s /etc/cdi/vrdma.json || fail "the unit does not write the CDI specification"
[[ $(inside stat -c %U /run/vrdma /run/vrdma/broker | xargs) == "vrdma root" ]] || fail "the run directory is another user's"

say "a vdevice for a virtual machine, whose process dies"
inside systemctl start vrdma-export@blue0
keeper() { inside systemctl show -p MainPID --value vrdma-export@blue0; }
child() { inside pgrep -P "$(keeper)"; }
serves() { inside test -S /run/vrdma-export/blue0.sock && [[ -n $(child) ]]; }
wait_until 20 serves || fail "it does not serve: $(inside systemctl status vrdma-export@blue0)"
first=$(keeper)
old=$(child)
another() { local now; now=$(child) && [[ $now != "$old" ]]; }
inside kill -9 "$old"
wait_until 20 another || fail "there is no other: $(inside systemctl status vrdma-export@blue0)"
[[ $(keeper) == "$first" ]] || fail "the keeper has ended"
inside systemctl stop vrdma-export@blue0
[[ $(inside systemctl show -p Result --value vrdma-export@blue0) == success ]] || fail "it does not end well"
inside pgrep vrdma-pvrdma && fail "processes of the virtual machine are left"

say "a vdevice that comes after its unit"
late() { inside systemctl show -p "$1" --value vrdma-export@late0; }
inside systemctl start vrdma-export@late0
restarted() { [[ $(late NRestarts) -ge 2 ]]; }
wait_until 20 restarted || fail "it is not tried again: $(inside systemctl status vrdma-export@late0)"
[[ $(late StartLimitIntervalUSec) == 0 ]] || fail "its attempts are limited"
inside ip netns add late
inside ip -n late link add e0 type veth peer name e1
inside ip -n late address add 10.1.0.1/24 dev e0
inside ip -n late link set e0 up
inside vrdmactl vdev create late0 --netns late --netdev e0 --tenant late >/dev/null
late_serves() { inside test -S /run/vrdma-export/late0.sock && [[ -n $(inside pgrep -P "$(late MainPID)") ]]; }
wait_until 20 late_serves || fail "it does not serve: $(inside systemctl status vrdma-export@late0)"
inside systemctl stop vrdma-export@late0

say "stop"
inside systemctl stop vrdmad
[[ $(inside systemctl show -p Result --value vrdmad) == success ]] || fail "it does not end well"
inside pgrep vrdmad && fail "processes are left"
no_groups() { [[ -z $(groups -name 'worker-*') ]]; }
wait_until 10 no_groups || fail "control groups are left: $(groups -name 'worker-*' | xargs)"
if grep -i 'vrdmad.*\(warn\|fail\|unknown\)' "$T/boot.log"; then fail "systemd complains"; fi
