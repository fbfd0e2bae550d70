#!/bin/bash
# tarball.sh: the archive of packaging/tarball runs on a machine that has only a shell: no loader,
# no C library, none of the libraries that the daemon needs.
#
#   chroot: busybox, /opt/vrdma
#   +--------------------------------+
#   | vrdmad, vrdmactl   va -- eth0  |  (netns a)
#   +--------------------------------+
. "$(dirname "$0")/lib.sh"
setup
busybox=$(command -v busybox) || skip "busybox is not installed"
ldd "$busybox" >/dev/null 2>&1 && skip "busybox is linked with libraries (the package busybox-static has another one)"
XZ_OPT=-0 "$(dirname "$0")/../../packaging/tarball" "$BUILD" "$T/vrdma.tar.xz" || fail "there is no archive"

root=$T/root
mkdir -p "$root"/{bin,opt,proc,sys,dev,tmp}
cp "$busybox" "$root/bin/busybox"
for applet in sh readlink; do ln -s busybox "$root/bin/$applet"; done
tar -C "$root/opt" -xf "$T/vrdma.tar.xz"
# In separate mount and process namespaces, so that all mounts and processes end with it.
inside() { unshare --mount --pid --fork --kill-child --root "$root" /bin/sh -ec "$1"; }

say "programs run and name their version"
inside '/opt/vrdma/bin/vrdmactl --version; /opt/vrdma/sbin/vrdmad --version' >"$T/version.log" || fail "they do not run"
grep -q '^vrdmad [0-9]' "$T/version.log" || fail "vrdmad does not name its version"
[[ -s $root/opt/vrdma/share/vrdma/grafana/vrdma.json ]] || fail "there is no dashboard in the archive"

say "the daemon makes a vdevice"
netns_add a
loose a eth0
touch "$root/netns" "$root/dev/null"
mount --bind "/run/netns/$(ns a)" "$root/netns"
mount --bind /dev/null "$root/dev/null"  # which a shell gives to what it starts in the background
status=0
inside '
  /bin/busybox mount -t proc proc /proc
  /opt/vrdma/sbin/vrdmad --run-dir /tmp/r --state-dir /tmp/s >/tmp/log 2>&1 &
  export VRDMA_RUN_DIR=/tmp/r
  until /opt/vrdma/bin/vrdmactl version >/dev/null 2>&1; do
    /bin/busybox kill -0 $! || exit 4
    /bin/busybox sleep 0.1
  done
  /opt/vrdma/bin/vrdmactl vdev create va --netns /netns --netdev eth0
  /opt/vrdma/bin/vrdmactl vdev list
  kill $!
  wait $! || exit 3' >"$T/daemon.log" 2>&1 || status=$?
umount "$root/netns" "$root/dev/null"
grep -q '^va *ACTIVE' "$T/daemon.log" || { cat "$T/daemon.log" "$root/tmp/log" || true; fail "there is no vdevice"; }
[[ $status -eq 0 ]] || fail "the daemon ends with a status other than 0"

say "an ordinary user has a sandbox, with a bad network, from wherever the archive was unpacked"
mkdir "$T/elsewhere"
tar -C "$T/elsewhere" -xf "$T/vrdma.tar.xz"
chmod -R a+rX "$T/elsewhere" "$root/opt"
read -ra as_user <<<"$(user_prefix nobody)"
box() { (cd "$1" && timeout -k 5 60 "${as_user[@]}" env -i PATH=/usr/bin:/bin HOME=/ "${@:2}"); }
box / "$root/opt/vrdma/bin/vrdma-sandbox" -- ibv_devices >"$T/box.log" 2>&1 || {
  grep 'cannot make a user namespace' "$T/box.log" && skip "$(cat "$T/box.log")"
  cat "$T/box.log"
  fail "no sandbox"
}
grep -q vrdma0 "$T/box.log" || fail "no vdevice in the sandbox"
box "$T/elsewhere/vrdma/bin" ./vrdma-sandbox --pair --loss 1 -- ibv_rc_pingpong -g 1 -n 100 -- \
  ibv_rc_pingpong -g 1 -n 100 10.0.0.1 >"$T/box.log" 2>&1 || { cat "$T/box.log"; fail "no pair of programs"; }
box / "$T/elsewhere/vrdma/bin/vrdma-sandbox" --demo >"$T/box.log" 2>&1 || { cat "$T/box.log"; fail "no demonstration"; }
[[ $(demo_rows "$T/box.log") -eq 3 ]] || { cat "$T/box.log"; fail "--demo measures too little"; }
[[ $(readlink -f "$T/elsewhere/vrdma/sbin/vrdma-runtime") == "$T/elsewhere/vrdma/lib/vrdma/vrdma-oci-hook" ]] ||
  fail "vrdma-runtime is not the hook"
[[ $(cd "$T/elsewhere/vrdma/lib/vrdma/stubs" && echo *) == "libdl.so.2 libpthread.so.0" ]] ||
  fail "what the hook adds to images is not beside it"
