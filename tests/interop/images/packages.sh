#!/bin/bash
# packages.sh trixie: the packages that are built here install in another Debian release, by apt, and run there.
#
#     a root of that release               netns a
#   +-----------------------------+     +-----------+
#   | vrdmad, vrdmactl exec       |     | va -- eth0|
#   +-----------------------------+     +-----------+
#
# With VRDMA_EVERY (tests/run --all) alone: the root takes a minute, and the network.
here=$(realpath "$(dirname "$0")")
. "$here/../../integration/lib.sh"
release=$1
[[ -n ${VRDMA_EVERY:-} ]] || skip "only with VRDMA_EVERY=1, which tests/run --all sets"
command -v mmdebstrap >/dev/null || skip "mmdebstrap is not installed"
setup
mkdir "$T/build"
(cd "$T/build" && cpack --config "$BUILD/CPackConfig.cmake" -B "$T/build" -D CPACK_OUTPUT_FILE_PREFIX="$T/packages" \
  -D CPACK_DEBIAN_COMPRESSION_TYPE=gzip) >"$T/cpack.log" 2>&1 || fail "cpack fails"
root=$T/root mirror=${VRDMA_MIRROR:-http://deb.debian.org/debian}
mmdebstrap --quiet --variant=apt --include=ibverbs-utils,ibverbs-providers,iproute2,mount --aptopt='Acquire::Languages "none"' \
  --dpkgopt='path-exclude=/usr/share/man/*' --skip=cleanup/apt "$release" "$root" "$mirror" >"$T/root.log" 2>&1 ||
  skip "no root of $release from $mirror: $(grep '^E:' "$T/root.log" | head -1)"
inside() { unshare --mount --pid --fork --kill-child --root "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C \
  DEBIAN_FRONTEND=noninteractive /bin/bash -euc "$1"; }

say "install in $(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' "$root/etc/os-release")"
cp "$T"/packages/*.deb "$root/var/tmp"
inside 'apt-get install -y -qq --no-install-recommends /var/tmp/*.deb' >"$T/apt.log" 2>&1 || fail "apt-get install"
inside 'for file in /usr/sbin/vrdmad /usr/bin/vrdmactl /usr/bin/vrdma-sandbox /usr/lib/libvrdma.so.1; do
    ldd -r $file; done' >"$T/ldd.log" 2>&1 || fail "ldd"
if grep -E 'not found|undefined symbol' "$T/ldd.log"; then fail "a library is missing"; fi

say "a program finds its vdevice"
netns_add a
loose a eth0
touch "$root/netns"
mount --bind "/run/netns/$(ns a)" "$root/netns"
status=0
mkdir -p "$root/sys" "$root/proc"
inside '
  mount -t proc proc /proc
  mount -t sysfs sysfs /sys
  vrdmad --run-dir /run/r --state-dir /run/s >/var/tmp/log 2>&1 &
  export VRDMA_RUN_DIR=/run/r
  until vrdmactl version >/dev/null 2>&1; do kill -0 $!; sleep 0.1; done
  vrdmactl vdev create va --netns /netns --netdev eth0
  vrdmactl exec va -- ibv_devinfo
  kill $!
  wait $!' >"$T/daemon.log" 2>&1 || status=$?
umount "$root/netns"
grep -q PORT_ACTIVE "$T/daemon.log" || { cat "$root/var/tmp/log"; fail "no active port"; }
[[ $status -eq 0 ]] || fail "the daemon ends with a status other than 0"
say "$(grep -c '=>' "$T/ldd.log") references to libraries are found, the port is active"
