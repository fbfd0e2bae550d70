# shellcheck shell=bash
# Functions of the tests with container engines, in addition to integration/lib.sh. Such a test runs in mount and network
# namespaces with an /etc, images and bridges of its own, so that it neither sees nor changes those of the host.
. "$(dirname "${BASH_SOURCE[0]}")/../../integration/lib.sh"
IMAGES_OF_RELEASES=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../images")

# apart ARGUMENTS...: runs the test again in namespaces of its own, unless it is there already.
apart() {
  [[ -z ${VRDMA_APART:-} ]] || return 0
  unshare --mount --propagation private true 2>/dev/null || skip "/ is no mount point (a chroot), so that mounts could not be kept to the test"
  VRDMA_APART=1 exec unshare --mount --net --propagation private "$0" "$@"
}

need() { command -v "$1" >/dev/null || skip "$1 is not installed"; }
# start_hooks_daemon: a daemon that answers the hooks of container runtimes.
start_hooks_daemon() {
  start_daemon
  [[ -S $R/hook.sock ]] || skip "this vrdmad has no socket for the hooks of container runtimes"
}

# own_etc: what is written in /etc is the test's.
own_etc() {
  mkdir "$T"/etc{,-work}
  mount -t overlay -o "lowerdir=/etc,upperdir=$T/etc,workdir=$T/etc-work" overlay /etc 2>/dev/null ||
    skip "the kernel has no overlay file system"
  mkdir -p /etc/cdi /etc/vrdma
}

# one_cgroup_version: crun does not run where both versions of control groups are mounted; shows version 1 alone.
one_cgroup_version() {
  local group
  mountpoint -q /sys/fs/cgroup/unified || return 0
  mkdir "$T/cgroup"
  mount -t tmpfs tmpfs "$T/cgroup"
  for group in /sys/fs/cgroup/*; do
    if mountpoint -q "$group" && [[ $group != */unified ]]; then
      mkdir "$T/cgroup/${group##*/}"
      mount --rbind "$group" "$T/cgroup/${group##*/}"
    fi
  done
  mount --rbind "$T/cgroup" /sys/fs/cgroup
}

# podman_start: `podman` means one with a storage of its own.
podman_start() {
  ip link set lo up
  one_cgroup_version
  cat >"$T/containers.conf" <<'END'
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=32768:32768"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
END
  mkdir "$T"/{storage,runroot,networks,podman}
}
RUNTIME=runc
podman() {
  CONTAINERS_CONF=$T/containers.conf timeout 120 "$(type -P podman)" --root "$T/storage" --runroot "$T/runroot" --storage-driver overlay \
    --network-config-dir "$T/networks" --tmpdir "$T/podman" --runtime "$RUNTIME" "$@"
}
podman_stop() {
  podman rm -f -t 0 -a >/dev/null 2>&1 || true
  # The deepest first.
  awk -v top="$T/" 'index($5, top) == 1 { print $5 }' /proc/self/mountinfo | tac | xargs -r umount -l || true
}

# make_image NAME RELEASE [COMMAND]: localhost/NAME, of programs of that release; COMMAND changes its files, which
# are in the present directory.
make_image() {
  local root status=0 copy=$T/image-$1
  root=$("$IMAGES_OF_RELEASES/root" "$2" small 2>"$T/root.log") || status=$?
  [[ $status -ne 77 ]] || skip "$(<"$T/root.log")"
  [[ $status -eq 0 ]] || fail "no root of $2: $(<"$T/root.log")"
  mkdir "$copy"{,-upper,-work}
  mount -t overlay -o "lowerdir=$root,upperdir=$copy-upper,workdir=$copy-work" overlay "$copy"
  (cd "$copy" && eval "${3:-true}")
  tar -C "$copy" -c --exclude='./proc/*' --exclude='./sys/*' --exclude='./dev/*' . | podman import - "localhost/$1" >/dev/null 2>"$T/import.log" ||
    fail "podman import: $(<"$T/import.log")"
  umount "$copy"
}
