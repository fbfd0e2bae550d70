#!/bin/bash
# cri.sh 1.6|1.7: pods of containerd's CRI, as Kubernetes starts them, get vdevices: of 1.7 by CDI, and of both by
# vrdma-runtime as the BinaryName of a runtime class. 1.7 is the one of Debian 13, which is only unpacked.
#
#     pod one                 bridge of CNI        pod two
#   +---------------------+                      +---------------------+
#   | sandbox, two        |                      | sandbox, container  |
#   | containers: vrdma0  |======================|  vrdma0             |
#   +---------------------+                      +---------------------+
here=$(realpath "$(dirname "$0")")
. "$here/lib.sh"
version=$1
for program in containerd ctr runc podman; do need $program; done
for plugin in bridge host-local loopback; do [[ -x /usr/lib/cni/$plugin ]] || skip "containernetworking-plugins is not installed"; done
/usr/bin/python3 -c 'import grpc' 2>/dev/null || skip "python3-grpcio is not installed"
apart "$@"
setup
[[ -x $BUILD/lib/vrdma/vrdma-oci-hook ]] || skip "the hook is not built with a sanitizer"
pods=()
cri_stop() {
  local one
  for one in "${pods[@]}"; do cri remove "$one" >/dev/null 2>&1; done
  NAMESPACE=k8s.io containerd_stop
  [[ -z ${PID[containerd]:-} ]] || { kill "${PID[containerd]}" && wait_until 20 ended "${PID[containerd]}"; }
  podman_stop
}
trap 'status=$? command=$BASH_COMMAND; set +e; cri_stop 2>/dev/null; remove_groups; finish "$status" "$command"' EXIT
mount -t tmpfs tmpfs /run/netns
own_etc
podman_start
if [[ $version == 1.7 ]]; then
  root_of trixie containerd
  PATH=$ROOT/usr/bin:$PATH  # before runc of this release, which that containerd calls
  containerd --version >"$T/version.log" 2>&1 || skip "containerd of trixie does not run here: $(head -1 "$T/version.log")"
  mkdir "$T/bin"
  ln -s /usr/sbin/runc "$T/bin/runc"
  PATH=$T/bin:$PATH
fi
[[ $(containerd --version) == *" $version."* ]] || skip "containerd $version is not installed: this is $(containerd --version)"
start_hooks_daemon
printf '[red]\ntenant = red\n[small]\ntenant = shop\n' >/etc/vrdma/classes.conf
printf 'class = "small"\nrun-dir = "%s"\n' "$R" >/etc/vrdma/runtime.conf
ctl cdi generate
mkdir "$T/cni"
cat >"$T/cni/lab.conflist" <<END
{"cniVersion": "0.4.0", "name": "lab", "plugins": [{"type": "bridge", "bridge": "lab0", "isGateway": true, "ipMasq": false,
  "ipam": {"type": "host-local", "dataDir": "$T/cni-state", "ranges": [[{"subnet": "10.89.9.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
END
make_image plain bookworm 'ldconfig -r .'
podman save -q -o "$T/plain.tar" localhost/plain >"$T/save.log" 2>&1 || fail "podman save: $(<"$T/save.log")"

# ---- containerd ---------------------------------------------------------------------------------

cri='[plugins."io.containerd.grpc.v1.cri"'
config=("$cri]" '  restrict_oom_score_adj = true' '  sandbox_image = "localhost/plain:latest"')
[[ $version == 1.6 ]] || config+=('  enable_cdi = true')
config+=("$cri.cni]" '  bin_dir = "/usr/lib/cni"' "  conf_dir = \"$T/cni\""
  "$cri.containerd.runtimes.runc]" '  runtime_type = "io.containerd.runc.v2"'
  "$cri.containerd.runtimes.vrdma]" '  runtime_type = "io.containerd.runc.v2"'
  '  pod_annotations = ["vrdma.io/*"]' '  container_annotations = ["vrdma.io/*"]'
  "$cri.containerd.runtimes.vrdma.options]" "  BinaryName = \"$BUILD/sbin/vrdma-runtime\"")
containerd_start "${config[@]}"
NAMESPACE=k8s.io
ctr_ images import "$T/plain.tar" >"$T/import.log" 2>&1 || fail "ctr images import: $(<"$T/import.log")"
cri() { timeout 90 "$here/cri.py" "$T/containerd.sock" --cgroup "/vr$$" "$@"; }

# start_pod NAME HANDLER [OPTION]...: its id is in $POD.
start_pod() {
  POD=$(cri pod "$@" 2>"$T/pod.log") || fail "pod $1: $(<"$T/pod.log")"
  pods+=("$POD")
}
# start NAME [OPTION]...: a container in $POD that sleeps; its id is in $STARTED.
start() {
  STARTED=$(cri container "$POD" "$1" localhost/plain:latest "${@:2}" -- sleep 1000 2>"$T/container.log") ||
    fail "container $1: $(<"$T/container.log")"
}
listed() { # TENANT/CLASS/POD of each vdevice
  ctl vdev list -o json | python3 -c '
import json, sys
for v in json.load(sys.stdin):
    print(v["tenant"], v["labels"]["class"], v["labels"].get("pod"), sep="/")'
}
no_vdevices() { [[ $(ctl vdev list | wc -l) -eq 1 ]]; }

# pods_with HANDLER TENANT CLASS [OPTION]...: two pods whose containers have these options.
pods_with() {
  local handler=$1 wanted="$2/$3" first second server address
  shift 3
  start_pod one "$handler" --annotation vrdma.io/device=evil
  first=$POD
  no_vdevices || fail "the sandbox has a vdevice: $(ctl vdev list)"
  start a "$@"
  server=$STARTED
  cri exec "$server" -- ibv_devinfo -v -d vrdma0 >"$T/devinfo.log" 2>&1 || fail "ibv_devinfo: $(<"$T/devinfo.log")"
  grep -q 'GID.*::ffff:10\.89\.9\.' "$T/devinfo.log" || fail "ibv_devinfo: $(<"$T/devinfo.log")"
  start b "$@" --env VRDMA_DEVICE=evil --env LD_PRELOAD=/evil.so --annotation vrdma.io/class=evil
  [[ $(listed) == "$wanted/$first" ]] || fail "the containers of a pod do not share $wanted/$first: $(listed)"
  cri exec "$STARTED" -- env -i ibv_devinfo -d vrdma0 >"$T/devinfo.log" 2>&1 || fail "ibv_devinfo in the second: $(<"$T/devinfo.log")"

  start_pod two "$handler"
  second=$POD
  start a "$@"
  address=$(cri address "$first")
  cri exec "$server" -- ib_write_lat -F -x 1 >"$T/server.log" 2>&1 &
  PID[server]=$!
  wait_until 20 listens_at "$address" || fail "the server does not listen: $(<"$T/server.log")"
  cri exec "$STARTED" -- ib_write_lat -F -x 1 "$address" >"$T/client.log" 2>&1 || fail "ib_write_lat $address: $(<"$T/client.log")"
  reap server 20
  [[ $REAPED -eq 0 ]] || fail "the server ends with $REAPED: $(<"$T/server.log")"
  say "ib_write_lat: $(awk '$1 == 2 { print $6 }' "$T/client.log") us"
  for POD in "$first" "$second"; do cri remove "$POD" 2>"$T/pod.log" || fail "remove: $(<"$T/pod.log")"; done
  wait_until 10 no_vdevices || fail "a vdevice outlives its pod: $(ctl vdev list)"
}
listens_at() { # ADDRESS: in the pod's network namespace, whose name containerd chose
  local name
  for name in /run/netns/cni-*; do
    nsenter --net="$name" -- sh -c 'ip -o address show; cat /proc/self/net/tcp /proc/self/net/tcp6' 2>/dev/null >"$T/listens"
    if grep -q "inet $1/" "$T/listens" && grep -qE "$(printf ':%04X' "$PORT") [0-9A-F]+:0000 0A " "$T/listens"; then return 0; fi
  done
  return 1
}

say "$(containerd --version), $(runc --version | head -1), image $(podman image inspect -f '{{.Digest}}' localhost/plain)"
say "vrdma-runtime as BinaryName: the class is that of runtime.conf"
pods_with vrdma shop small
if [[ $version == 1.6 ]]; then
  say "devices of CDI are ignored"
  start_pod one runc
  start a --cdi vrdma.io/device=red
  no_vdevices || fail "there is a vdevice: $(ctl vdev list)"
else
  say "devices of CDI: the class is that of the device"
  pods_with runc red red --cdi vrdma.io/device=red
  say "a class that does not exist is refused"
  start_pod one runc
  if cri container "$POD" a localhost/plain:latest --cdi vrdma.io/device=none -- sleep 1000 >"$T/refused.log" 2>&1; then fail "a container of no class starts"; fi
  grep -q 'vrdma.io/device=none' "$T/refused.log" || fail "it is refused by: $(<"$T/refused.log")"
fi
