#!/bin/bash
# packages.sh: builds, installs, uses, removes and purges the Debian packages in a temporary copy of
# this host: an overlay over / in a mount namespace.
#
#     the copy (chroot)                   netns red             netns blue
#   +-----------------------------+     +------------+        +-------------+
#   | dpkg -i, vrdmad as its unit |     | red0 -- e0 |= veth =| e0 -- blue0 |
#   | starts it, dpkg -r, dpkg -P |     +------------+        +-------------+
#   +-----------------------------+
. "$(dirname "$0")/lib.sh"
setup
SOURCES=$(realpath "$(dirname "$0")/../..")

if [[ ${1:-} != inside ]]; then
  unshare --mount --propagation private true 2>/dev/null ||
    skip "/ is no mount point (a chroot), so that mounts could not be kept to the test"
  say "build"
  mkdir "$T/copy"
  build_packages
  ls "$T/packages"/*.deb >"$T/packages.log"
  [[ $(wc -l <"$T/packages.log") -eq 4 ]] || fail "not 4 packages: $(xargs -n1 basename <"$T/packages.log" | xargs)"
  unshare --mount --propagation private "$0" inside "$T/copy" "$T/packages" || fail "in the copy of this host"
  exit
fi

copy=$2 packages=$3
copy_host "$copy"
root=$copy/root
cp "$packages"/*.deb "$SOURCES/docs/examples/vdevices.c" "$SOURCES/vrdmad/privileges.cc" "$root/tmp"
cat >"$root/tmp/inside" <<'INSIDE'
set -euo pipefail
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive
say() { echo "-- $*"; }
fail() { echo "FAILED: $*" >&2; cat /tmp/*.log >&2; exit 1; }
unset VRDMA_RUN_DIR LD_LIBRARY_PATH LD_PRELOAD
trap 'set +e; kill -9 $(jobs -p) $(cat /run/vrdma/vrdmad.lock 2>/dev/null) 2>/dev/null; ip netns delete red 2>/dev/null; ip netns delete blue 2>/dev/null' EXIT

say "install"
rm -f /var/lib/man-db/auto-update  # its index takes longer than all the rest
dpkg --force-unsafe-io -i /tmp/*.deb >/tmp/dpkg.log 2>&1 || fail "dpkg -i"
[[ $(dpkg-query -W -f '${db:Status-Status}\n' vrdma vrdma-libraries libvrdma1 libvrdma-dev | uniq) == installed ]] || fail "not installed"
ldconfig -p | grep 'libvrdma.so.1 .*=> /' >/dev/null || fail "the loader does not find libvrdma.so.1"
for page in vrdmad vrdmactl vrdma-oci-hook vrdma-sandbox vrdma ibv_provision_resources; do man -w "$page" >/dev/null || fail "no manual page $page"; done
for file in vrdma.json alerts.yaml; do [[ -s /usr/share/vrdma/grafana/$file ]] || fail "no $file for Grafana"; done

say "container engines know the class default, and its hook is there"
[[ $(python3 -c 'import json; print(*(d["name"] for d in json.load(open("/etc/cdi/vrdma.json"))["devices"]))') == default ]] ||
  fail "/etc/cdi/vrdma.json"
hook=$(sed -n 's/.*"path": "\(.*\)",/\1/p' /etc/cdi/vrdma.json | sort -u)
[[ $hook == /usr/lib/vrdma/vrdma-oci-hook ]] || fail "the hook is '$hook'"
"$hook" poststop <<<'{}' || fail "$hook poststop"
[[ $(cd "${hook%/*}/stubs" && echo *) == "libdl.so.2 libpthread.so.0" ]] || fail "what the hook adds to images is not beside it"
[[ $(realpath /usr/sbin/vrdma-runtime) == "$hook" ]] || fail "vrdma-runtime is no second name of the hook"

say "the unit: sound, and its capabilities are those of privileges.cc and of the start"
unit=/usr/lib/systemd/system/vrdmad.service
SYSTEMD_LOG_LEVEL=warning systemd-analyze verify "$unit" >/tmp/verify.log 2>&1 || fail "systemd-analyze verify"
grep -i vrdmad /tmp/verify.log && fail "systemd-analyze has to say something"
allowed=$(sed -n 's/^CapabilityBoundingSet=//p' $unit | tr ' ' '\n' | sort)
listed=$( (sed -n 's/.*unsigned{\(CAP_[A-Z_]*\)}.*/\1/p' /tmp/privileges.cc; printf '%s\n' CAP_CHOWN CAP_SYS_RESOURCE) | sort)
[[ $allowed == "$listed" ]] || fail "the unit allows" $allowed

say "start, as the unit says"
read -ra command < <(sed -n 's/^ExecStart=//p' $unit)
bounds=$(sed -n 's/^CapabilityBoundingSet=CAP_//p' $unit | sed 's/ CAP_/,+/g' | tr A-Z a-z)
python3 - "$bounds" "${command[@]}" >/tmp/vrdmad.log 2>&1 <<'END' &
import os, socket, sys
ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
ready.bind("/run/notify")
os.chmod("/run/notify", 0o777)  # as systemd does
os.environ["NOTIFY_SOCKET"] = "/run/notify"
if os.fork():
    while b"READY=1" not in ready.recv(4096):
        pass
    open("/run/ready", "w").close()
    print("ended", os.wait(), flush=True)
else:
    os.execvp("setpriv", ["setpriv", "--bounding-set=-all,+" + sys.argv[1], "--no-new-privs", *sys.argv[2:]])
END
for _ in {1..200}; do [[ -e /run/ready ]] && break; sleep 0.05; done
[[ -e /run/ready ]] || fail "vrdmad does not say that it is ready"
[[ $(stat -c %U /var/lib/vrdma/state.db) == vrdma ]] || fail "the state belongs to $(stat -c %U /var/lib/vrdma/state.db)"
[[ $(stat -c %U "/proc/$(cat /run/vrdma/vrdmad.lock)/stat") == root ]] || fail "others of its user can read its memory"
grep -q "^Uid:.$(id -u vrdma)" "/proc/$(cat /run/vrdma/vrdmad.lock)/status" || fail "it is another user"

say "use"
ip netns add red
ip netns add blue
nsenter --net=/run/netns/red ip link add e0 type veth peer name e0 netns blue
for n in red:1 blue:2; do
  nsenter --net=/run/netns/${n%:*} ip address add 10.0.0.${n#*:}/24 dev e0
  nsenter --net=/run/netns/${n%:*} ip link set e0 up
  vrdmactl vdev create ${n%:*}0 --netns ${n%:*} --netdev e0 --tenant ${n%:*} --fabric shared
done
vrdmactl exec red0 -- ibv_devinfo -d red0 | grep PORT_ACTIVE >/dev/null || fail "ibv_devinfo"
index() { vrdmactl gid list "$1" | awk -v a="$2" 'index($0, a) { print $2 }'; }
vrdmactl exec red0 -- ibv_rc_pingpong -e -n 100 -d red0 -g "$(index red0 10.0.0.1)" >/tmp/server.log 2>&1 &
server=$!
for _ in {1..400}; do nsenter --net=/run/netns/red ss -Hltn 'sport = :18515' | grep . >/dev/null && break; sleep 0.05; done
vrdmactl exec blue0 -- ibv_rc_pingpong -e -n 100 -d blue0 -g "$(index blue0 10.0.0.2)" 10.0.0.1 >/tmp/client.log || fail "ibv_rc_pingpong"
wait $server || fail "ibv_rc_pingpong's server"
cd /tmp
gcc -o vdevices vdevices.c $(pkg-config --cflags --libs vrdma) -libverbs
vrdmactl vdev delete blue0
nsenter --net=/run/netns/blue ./vdevices e0 new0 >/tmp/example.log || fail "the example of the C API"
grep -q 'event: new0 removed' /tmp/example.log || fail "the example did not end"
[[ $(vrdma-sandbox -- ibv_devices | grep -c vrdma0) -eq 1 ]] || fail "vrdma-sandbox"
vrdmactl doctor --netns red >/tmp/doctor.log || fail "vrdmactl doctor"
kill "$(cat /run/vrdma/vrdmad.lock)"
for _ in {1..200}; do grep -q '^ended' /tmp/vrdmad.log && break; sleep 0.05; done
grep -q '^ended ([0-9]*, 0)' /tmp/vrdmad.log || fail "vrdmad does not end well"

say "remove: the configuration and the state stay; purge: nothing stays"
dpkg --force-unsafe-io -r libvrdma-dev libvrdma1 vrdma-libraries vrdma >/tmp/remove.log 2>&1 || fail "dpkg -r"
[[ -e /etc/vrdma/vrdmad.conf && -d /var/lib/vrdma ]] || fail "the configuration or the state is gone"
[[ ! -e /usr/sbin/vrdmad && ! -e /usr/sbin/vrdma-runtime && ! -e /etc/cdi/vrdma.json && ! -e /usr/lib/vrdma && ! -e $unit ]] || fail "something is left"
dpkg --force-unsafe-io -P vrdma vrdma-libraries libvrdma1 libvrdma-dev >/tmp/purge.log 2>&1 || fail "dpkg -P"
INSIDE
chroot "$root" /usr/bin/env -i /bin/bash /tmp/inside
left=$(find "$copy/changed" -not -type c -not -path '*/var/cache/man/*' \
  \( -iname '*vrdma*' -o -iname '*ibv_*virtual*' \))
[[ -z $left ]] || fail "left: $left"
