# shellcheck shell=bash
# Functions of the tests with a device plugin of Kubernetes, in addition to those of the tests with container engines. The
# tests run the real plugin and the real vrdmad; kubelet.py imitates the kubelet. VRDMA_PLUGIN names a plugin of another build.
. "$(dirname "${BASH_SOURCE[0]}")/../../interop/containers/lib.sh"
KUBERNETES=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
PLUGIN=${VRDMA_PLUGIN:-$BUILD/bin/vrdma-device-plugin}
readonly KUBERNETES PLUGIN

need_plugin() {
  [[ -x $PLUGIN ]] || fail "$PLUGIN is not built"
  /usr/bin/python3 -c 'import grpc' 2>/dev/null || skip "python3-grpcio is not installed"
}

# kubelet_start [OPTION]...: its directory is $T/device-plugins or $DEVICE_PLUGINS, its log $T/kubelet.log.
kubelet_start() {
  "$KUBERNETES/kubelet.py" "$@" "${DEVICE_PLUGINS:-$T/device-plugins}" "$T/kubelet.control" >>"$T/kubelet.log" 2>&1 &
  PID[kubelet]=$!
  wait_until 20 test -S "$T/kubelet.control" || fail "the stand-in for the kubelet does not start: $(<"$T/kubelet.log")"
}
# ask WORDS...: a command for the kubelet; kubelet.py lists them.
ask() { "$KUBERNETES/ask.py" "$T/kubelet.control" "$@"; }
# asked WORDS...: the same, and the test fails if the command does.
asked() { ask "$@" >"$T/asked" 2>&1 || fail "$*: $(<"$T/asked")"; }

# plugin_start NAME [ARGUMENT]...: a plugin whose log is $T/NAME.log.
plugin_start() {
  local name=$1
  "$PLUGIN" --run-dir "$R" --kubelet-dir "$T/device-plugins" "${@:2}" >>"$T/$name.log" 2>&1 &
  PID[$name]=$!
}
# has RESOURCE CAPACITY ALLOCATABLE [disconnected]: as the node's status says.
has() { ask status | grep -qx "vrdma.io/$1 capacity=$2 allocatable=$3 ${4:-connected}"; }
# becomes SECONDS RESOURCE CAPACITY ALLOCATABLE [disconnected]
becomes() { wait_until "$1" has "${@:2}" || fail "it is not $*: $(ask status)"; }
# registrations [RESOURCE]: how many there were, of each version.
registrations() { ask registrations | grep -c "^vrdma.io/${1:-}" || true; }

# pod NAME [OPTION]... [-- COMMAND]: what the kubelet says of it is in $T/pod-NAME.
pod() { ask pod "$@" >"$T/pod-${1//\//-}" 2>"$T/pod.errors" || fail "pod $1: $(<"$T/pod.errors")"; }
# of_pod NAME WORD: what the kubelet says behind that word: uid, id, sandbox, address.
of_pod() { sed -n "s/^$2 //p" "$T/pod-${1//\//-}"; }
# refused_pod SENTENCE NAME [OPTION]...: the kubelet does not admit it, or it does not start.
refused_pod() {
  if ask pod "${@:2}" >"$T/refused.log" 2>&1; then fail "pod $2 starts: $1"; fi
  grep -qE "$1" "$T/refused.log" || fail "pod $2 is refused by: $(<"$T/refused.log")"
}

# ---- pods that containerd runs ---------------------------------------------------------------------

need_pods() {
  local name
  for name in runc ib_write_bw; do need "$name"; done
  for name in bridge host-local loopback; do [[ -x /usr/lib/cni/$name ]] || skip "containernetworking-plugins is not installed"; done
  need_plugin
  apart "$@"
}
# pods_setup: a containerd of Debian 13 in PATH, which is only unpacked, a network of pods, and an image of programs of RDMA,
# $POD_IMAGE. After setup().
readonly POD_IMAGE=registry.local/vrdma/pod:1
pods_setup() {
  [[ -x $BUILD/lib/vrdma/vrdma-oci-hook ]] || skip "the hook is not built with a sanitizer"
  NAMESPACE=k8s.io
  trap 'status=$? command=$BASH_COMMAND; set +e; pods_stop 2>/dev/null; remove_groups; finish "$status" "$command"' EXIT
  root_of trixie containerd
  own_etc
  ip link set lo up
  one_cgroup_version
  mkdir "$T"/{bin,cni}
  ln -s "$(type -P runc)" "$T/bin/runc"
  PATH=$T/bin:$ROOT/usr/bin:$PATH  # that containerd calls the runc of this release
  containerd --version >"$T/version.log" 2>&1 || skip "containerd of trixie does not run here: $(head -1 "$T/version.log")"
  say "$(<"$T/version.log"), $(runc --version | head -1)"
  cat >"$T/cni/lab.conflist" <<CNI
{"cniVersion": "0.4.0", "name": "lab", "plugins": [{"type": "bridge", "bridge": "lab0", "isGateway": true, "ipMasq": false,
  "ipam": {"type": "host-local", "dataDir": "$T/cni-state", "ranges": [[{"subnet": "10.89.9.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
CNI
  "$KUBERNETES/image.py" "$T/image.tar" "$POD_IMAGE" bash sh sleep cat ls grep id ib_write_bw ibv_devinfo 2>"$T/image.log" ||
    fail "no image: $(<"$T/image.log")"
}
# The kubelet ends first, because it starts containers again. What a test that fails leaves is killed.
pods_stop() {
  [[ -z ${PID[kubelet]:-} ]] || kill -9 "${PID[kubelet]}"
  containerd_stop
  [[ -z ${PID[containerd]:-} ]] || { kill "${PID[containerd]}" && wait_until 20 ended "${PID[containerd]}"; }
  [[ $status -eq 0 ]] || in_pods | xargs -r kill -9
  unmount_all
}
# The numbers of the processes in pods.
in_pods() { find /sys/fs/cgroup -path "*/vr$$/*cgroup.procs" -exec cat {} + 2>/dev/null | sort -u; }
readonly CRI='[plugins."io.containerd.grpc.v1.cri"'  # a table of containerd's configuration, without the end of its name
# runtime_start [LINE]...: containerd for pods, with these lines in the table of the CRI.
runtime_start() {
  containerd_start "$CRI]" "$@" '  restrict_oom_score_adj = true' "  sandbox_image = \"$POD_IMAGE\"" \
    "$CRI.cni]" '  bin_dir = "/usr/lib/cni"' "  conf_dir = \"$T/cni\"" \
    "$CRI.containerd.runtimes.runc]" '  runtime_type = "io.containerd.runc.v2"'
  prlimit --pid "${PID[containerd]}" --memlock=0:0  # and so of containers
}
import_image() { # ARCHIVE
  ctr_ images import "$1" >"$T/import.log" 2>&1 || fail "ctr images import: $(<"$T/import.log")"
}

# vdevices: id:NUMBER SANDBOX LABELS of each.
vdevices() {
  ctl vdev list -o json | python3 -c '
import json, sys
for v in json.load(sys.stdin):
    labels = v["labels"]
    print("id:" + str(v["id"]), labels.get("pod"), *(f"{k}={labels[k]}" for k in sorted(labels) if k not in ("pod", "container")))'
}
field_of() { ctl vdev show "$1" -o json | sed -nE "s/^ *\"$2\": \"(.*)\",?\$/\1/p"; } # VDEVICE FIELD
vdev_of() { vdevices | awk -v pod="$(of_pod "$1" sandbox)" '$2 == pod { print $1 }'; } # POD
# traffic SERVER CLIENT OPTION...: spawns `server` and `client`, ib_write_bw by rdma_cm between two pods.
traffic() {
  ask exec "$1" -- ib_write_bw -R -F "${@:3}" >"$T/server.log" 2>&1 &
  PID[server]=$!
  local device
  device=$(vdev_of "$1")
  wait_until 20 listening_or_ended "$device" || fail "the server in $1 does not listen: $(<"$T/server.log")"
  ! ended "${PID[server]}" || fail "the server in $1 ends: $(<"$T/server.log")"
  ask exec "$2" -- ib_write_bw -R -F "${@:3}" "$(of_pod "$1" address)" >"$T/client.log" 2>&1 &
  PID[client]=$!
}
listening_or_ended() { ended "${PID[server]}" || listening "$1"; }
# refused_in_pods SERVER: as refused_again. With a client of the kubelet's exec the program in the pod does not end.
refused_in_pods() {
  local pid
  refused_again || return 1
  for pid in $(in_pods); do
    [[ $(cat "/proc/$pid/comm" 2>/dev/null) != ib_write_bw ]] || kill -9 "$pid" 2>/dev/null || true
  done
  wait_until 20 listens_nowhere "$(vdev_of "$1")" || fail "a server that was killed listens: $(ctl conn list)"
}
listens_nowhere() { ! listening "$1"; }
# spread SERVER CLIENT: 2,000 messages arrive. A client that is refused tries again.
spread() {
  local _
  for _ in {1..5}; do
    traffic "$@" -n 2000
    wait_until 60 ended "${PID[client]}" || fail "the client in $2 does not end"
    if refused_in_pods "$1"; then continue; fi
    both_end_well ib_write_bw
    say "ib_write_bw from $2 to $1: $(awk '$1 == 65536 { print $4 }' "$T/client.log") MB/s"
    return
  done
  fail "the client always comes before its server"
}
# endless SERVER CLIENT: there is traffic, which does not end by itself.
endless() {
  local _ device before
  device=$(vdev_of "$2")
  for _ in {1..5}; do
    before=$(requests_of "$device")
    traffic "$@" --run_infinitely -D 1
    wait_until 20 has_sent_or_ended "$device" $((before + 100)) || fail "there is no traffic from $2: $(<"$T/client.log")"
    if ! ended "${PID[client]}"; then return; fi
    refused_in_pods "$1" || fail "there is no traffic: $(<"$T/client.log")"
  done
  fail "the client always comes before its server"
}
requests_of() { stat_of "$1" work_requests_direct work_requests_connected; }
has_sent_or_ended() { ended "${PID[client]}" || [[ $(requests_of "$1") -ge $2 ]]; } # more than parameters
works_or_ended() { ended "${PID[client]}" || works "$1"; }
