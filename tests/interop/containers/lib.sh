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
# start_hooks_daemon [ARGUMENT]...: a daemon that answers the hooks of container runtimes.
start_hooks_daemon() {
  start_daemon "$@"
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
ENGINE=podman
podman() {
  CONTAINERS_CONF=$T/containers.conf timeout 120 "$(type -P podman)" --root "$T/storage" --runroot "$T/runroot" --storage-driver overlay \
    --network-config-dir "$T/networks" --tmpdir "$T/podman" --runtime "$RUNTIME" "$@"
}
podman_stop() {
  podman rm -f -t 0 -a >/dev/null 2>&1 || true
  unmount_all
}
unmount_all() { # of the test; the deepest first
  awk -v top="$T/" 'index($5, top) == 1 { print $5 }' /proc/self/mountinfo | tac | xargs -r umount -l || true
}

# root_of RELEASE [SIZE]: $ROOT is a directory with programs of that release: images/root. It may come from the mirror, which only the
# network of the process that started the test reaches.
root_of() {
  local status=0
  ROOT=$(nsenter --net="/proc/$PPID/ns/net" -- "$IMAGES_OF_RELEASES/root" "$1" "${2:-small}" 2>"$T/root.log") || status=$?
  [[ $status -ne 77 ]] || skip "$(<"$T/root.log")"
  [[ $status -eq 0 ]] || fail "no root of $1: $(<"$T/root.log")"
}

# make_image NAME RELEASE [COMMAND]: localhost/NAME of podman or of $ENGINE, of programs of that release; COMMAND changes
# its files, which are in the present directory, and the words CHANGES its configuration. The same files give a layer of
# the same digest.
CHANGES=()
make_image() {
  local root copy=$T/image-$1
  root_of "$2"
  root=$ROOT
  mkdir "$copy"{,-upper,-work}
  mount -t overlay -o "lowerdir=$root,upperdir=$copy-upper,workdir=$copy-work" overlay "$copy"
  (cd "$copy" && eval "${3:-true}")
  tar -C "$copy" -c --sort=name --mtime=@0 --exclude=./var/cache/ldconfig --exclude='./proc/*' --exclude='./sys/*' --exclude='./dev/*' . | "$ENGINE" import -c 'ENV PATH=/usr/sbin:/usr/bin:/sbin:/bin' -c 'CMD ["sleep", "1000"]' "${CHANGES[@]}" - "localhost/$1" >/dev/null 2>"$T/import.log" ||
    fail "import: $(<"$T/import.log")"
  umount "$copy"
}

# remove_groups: the control groups below /vrPID, when the test ends with the exit status $status. Workers end with the
# daemon.
remove_groups() {
  if [[ $status -eq 0 && -n $DAEMON ]]; then
    stop_daemon || status=1
  elif [[ -n $DAEMON ]]; then
    kill -9 "$DAEMON" 2>/dev/null
    find /sys/fs/cgroup -path "*/vr$$*/cgroup.procs" -exec cat {} + 2>/dev/null | xargs -r kill -9 2>/dev/null
  fi
  wait_until 10 no_engines || true  # podman cleans up after a container in the background, and makes its groups again
  wait_until 5 groups_are_removed || true
}
no_engines() { ! pgrep -f "^[^ ]*(podman|conmon|runc|containerd-shim).* $T/" >/dev/null; }
groups_are_removed() {
  find /sys/fs/cgroup -depth -type d -path "*/vr$$*" -exec rmdir {} + 2>/dev/null
  [[ -z $(find /sys/fs/cgroup -type d -path "*/vr$$*" -print -quit 2>/dev/null) ]]
}

# ---- containers of podman -------------------------------------------------------------------------

# run CLASS [OPTION]... -- COMMAND...: in a container of $IMAGE.
IMAGE=localhost/plain
run() {
  local device=$1 options=()
  shift
  while [[ $1 != -- ]]; do options+=("$1"); shift; done
  podman run --rm --network lab --device "vrdma.io/device=$device" "${options[@]}" "$IMAGE" "${@:2}"
}
address() { podman inspect -f '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}' "$1"; }
# listens_in CONTAINER: the program in it waits for a TCP connection.
listens_in() {
  local pid
  pid=$(podman inspect -f '{{.State.Pid}}' "$1")
  [[ $pid -ne 0 ]] || fail "$1 ended before its client came: $(podman logs "$1" 2>&1)"
  printf -v hex %04X "$PORT"
  cat "/proc/$pid/net/tcp" "/proc/$pid/net/tcp6" | grep -E ":$hex [0-9A-F]+:0000 0A " >/dev/null
}
# pair CLASS CLASS [OPTION]...: ib_write_lat in two containers, both with the options.
containers_pair() {
  local server=$1 client=$2 ip
  shift 2
  run "$server" "$@" -d --name server -- ib_write_lat -F -x 1 >"$T/server.log" || fail "the server is not started: $(<"$T/server.log")"
  wait_until 20 listens_in server || fail "the server does not listen: $(podman logs server 2>&1)"
  ip=$(address server)
  run "$client" "$@" -- ib_write_lat -F -x 1 "$ip" >"$T/client.log" 2>&1 || fail "ib_write_lat $ip: $(<"$T/client.log")"
  podman wait server >/dev/null 2>&1 || true
  say "ib_write_lat: $(awk '$1 == 2 { print $6 }' "$T/client.log") us"
}

# ---- containerd -----------------------------------------------------------------------------------

# containerd_start [LINE]...: a containerd of the test, with these lines of configuration besides. After containerd_end, its
# containers go on.
CONTAINERD=  # its socket; empty: $T/containerd.sock
containerd_start() {
  CONTAINERD=${CONTAINERD:-$T/containerd.sock}
  mkdir -p /run/containerd
  mountpoint -q /run/containerd || mount -t tmpfs tmpfs /run/containerd  # sockets of shims and the state of runc are the test's
  {
    printf '%s\n' 'version = 2' "root = \"$T/containerd/root\"" "state = \"$T/containerd/state\"" "$@"
    printf '%s\n' '[grpc]' "  address = \"$CONTAINERD\"" '[ttrpc]' "  address = \"$T/containerd.ttrpc\""
  } >"$T/containerd.toml"
  containerd --log-level warn --config "$T/containerd.toml" >>"$T/containerd.log" 2>&1 &
  PID[containerd]=$!
  wait_until 20 containerd_answers || fail "containerd does not answer"
}
NAMESPACE=vr$$  # of containerd
ctr_() { timeout 60 ctr --address "$CONTAINERD" --namespace "$NAMESPACE" "$@"; }
containerd_end() {
  kill "${PID[containerd]}"
  reap containerd 20
}
containerd_answers() { ctr_ version >/dev/null 2>&1; }
# Shims, which are no children of containerd, end with their containers.
containerd_stop() {
  local task
  for task in $(ctr_ task list -q 2>/dev/null || true); do ctr_ task delete -f "$task" >/dev/null 2>&1 || true; done
}

# ---- what is left -------------------------------------------------------------------------------

# ---- Docker ---------------------------------------------------------------------------------------

# docker_place: before docker_start; all that Docker writes is the test's, and gone at its end.
docker_place() {
  trap 'status=$? command=$BASH_COMMAND; set +e; docker_stop 2>/dev/null; remove_groups; finish "$status" "$command"' EXIT
  ip link set lo up
  mount -t tmpfs -o mode=755 tmpfs /run  # where dockerd writes besides
  mkdir /run/netns
}
# docker_start OPTIONS OF DOCKERD...: with a containerd of its own. Skips the test where it does not run.
docker_start() {
  containerd_start 'disabled_plugins = ["io.containerd.grpc.v1.cri"]'
  dockerd --data-root "$T/docker" --exec-root "$T/docker-exec" -H "unix://$T/docker.sock" --containerd "$T/containerd.sock" \
    -p "$T/docker.pid" --iptables=false --ip6tables=false --storage-driver overlay2 --cgroup-parent "/vr$$" \
    --log-level warn "$@" >"$T/dockerd.log" 2>&1 &
  PID[dockerd]=$!
  docker_answers() { ended "${PID[dockerd]}" || docker_ version >/dev/null 2>&1; }
  wait_until 40 docker_answers || fail "dockerd does not answer"
  ! ended "${PID[dockerd]}" || skip "dockerd does not run here: $(tail -1 "$T/dockerd.log")"
  ENGINE=docker_
}
docker_() {
  DOCKER_CONFIG=$T/docker-config timeout 120 docker -H "unix://$T/docker.sock" "$@"
}
docker_stop() {
  docker_ ps -aq 2>/dev/null | xargs -r timeout 60 docker -H "unix://$T/docker.sock" rm -f >/dev/null 2>&1
  [[ -z ${PID[dockerd]:-} ]] || { kill "${PID[dockerd]}" && wait_until 20 ended "${PID[dockerd]}"; }
  containerd_stop
  [[ -z ${PID[containerd]:-} ]] || { kill "${PID[containerd]}" && wait_until 20 ended "${PID[containerd]}"; }
  unmount_all
}

# mounts: where there are any. Those of tests that run meanwhile, which were copied when this one began, may end.
mounts() {
  awk -v own="$T/" '$5 !~ "^/(tmp|run/netns/vr)" || index($5, own) == 1 { print $5 }' /proc/self/mountinfo | sort
}
# remains: what vrdma and the runtimes have made, in lines to compare before and after: control groups below /vrPID,
# mounts of the test, files of the run directory, rows of the store, descriptors of the daemon's processes.
remains() {
  find /sys/fs/cgroup -type d -path "*/vr$$*" -printf 'group %p\n' 2>/dev/null | sed -E 's/worker-[0-9-]+$/worker/' | sort
  mounts | sed 's/^/mount /'
  find "$R" -mindepth 1 -printf 'file %P\n' | sort
  # The daemon keeps its database locked.
  rm -rf "$T/store-copy"
  cp -r "$S" "$T/store-copy"
  python3 - "$T/store-copy" <<'PYTHON'
import glob, sqlite3, sys
for path in glob.glob(sys.argv[1] + "/*.db"):
    store = sqlite3.connect(path)
    tables = [name for name, in store.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    for table in tables:
        print("rows", table, *store.execute(f"SELECT count(*) FROM {table}").fetchone())
PYTHON
  local name
  echo "descriptors control $(ls "/proc/$DAEMON/fd" | wc -l)"
  for name in broker intake stopper; do echo "descriptors $name $(ls "/proc/$(helper $name)/fd" | wc -l)"; done
  echo "workers $(workers | wc -l)"
}
# What the descriptors of control are, for a person who looks for one that is left.
kinds_of_descriptors() { ls -l "/proc/$DAEMON/fd" | sed -nE 's/.* -> //p' | sed -E 's/[0-9]+/N/g' | sort | uniq -c; }
# remember FILE VDEVICES: writes what `remains` to FILE, when the store has that many vdevices.
remember() {
  wait_until 20 remains_with "$1" "$2" || fail "there are not $2 vdevices: $(grep ^rows "$1")"
  kinds_of_descriptors >"$1-kinds"
}
remains_with() {
  remains >"$1"
  grep -qx "rows vdev $2" "$1"
}
# remains_as FILE: nothing more is there than what `remains` wrote to FILE. Descriptors may have become fewer.
remains_as() {
  remains >"$T/remains-now" 2>/dev/null
  join_remains "$1" "$T/remains-now" >"$T/remains-diff"
  kinds_of_descriptors 2>/dev/null | diff "$1-kinds" - >"$T/kinds.log" || true  # fail() shows it
  [[ ! -s $T/remains-diff ]]
}
join_remains() { # BEFORE AFTER: the lines that tell a difference
  awk 'FNR == 1 { file++ }
    { number = $1 ~ /^(rows|descriptors|workers)$/ ? $NF : 1; key = $0; if ($1 ~ /^(rows|descriptors|workers)$/) sub(/ [0-9]+$/, "", key) }
    file == 1 { before[key] += number }
    file == 2 { after[key] += number }
    END {
      for (key in before) if (!(key in after)) after[key] = 0
      for (key in after)
        if (after[key] > before[key] || (after[key] < before[key] && key !~ /^descriptors/)) print key ": " before[key] + 0 " before, " after[key] " after"
    }' "$1" "$2" | sort
}
