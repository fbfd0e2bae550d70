#!/bin/bash
# pods.sh: pods that a kubelet starts with containerd 1.7 get vdevices by the device plugin. The kubelet is kubelet.py; the
# containerd is that of Debian 13, which is only unpacked. Pods are as the Pod Security Standard "restricted" demands.
#
#     pod shop/one           bridge of CNI        pod shop/two          pod lab/three
#   +--------------------+                     +-------------------+  +-------------------+
#   | vrdma0, user 1000  |=====================| vrdma0            |==| vrdma0, other GIDs|
#   +--------------------+                     +-------------------+  +-------------------+
here=$(realpath "$(dirname "$0")")
. "$here/lib.sh"
for program in runc ib_write_bw; do need "$program"; done
for plugin in bridge host-local loopback; do [[ -x /usr/lib/cni/$plugin ]] || skip "containernetworking-plugins is not installed"; done
need_plugin
apart "$@"
setup
[[ -x $BUILD/lib/vrdma/vrdma-oci-hook ]] || skip "the hook is not built with a sanitizer"
NAMESPACE=k8s.io
pods_stop() {
  containerd_stop
  [[ -z ${PID[containerd]:-} ]] || { kill "${PID[containerd]}" && wait_until 20 ended "${PID[containerd]}"; }
  unmount_all
}
trap 'status=$? command=$BASH_COMMAND; set +e; pods_stop 2>/dev/null; remove_groups; finish "$status" "$command"' EXIT
mount -t tmpfs tmpfs /run/netns
own_etc
ip link set lo up
one_cgroup_version
root_of trixie containerd
mkdir "$T"/{bin,cni}
ln -s "$(type -P runc)" "$T/bin/runc"
PATH=$T/bin:$ROOT/usr/bin:$PATH  # that containerd calls the runc of this release
containerd --version >"$T/version.log" 2>&1 || skip "containerd of trixie does not run here: $(head -1 "$T/version.log")"
say "$(<"$T/version.log"), $(runc --version | head -1)"

# ---- a node ---------------------------------------------------------------------------------------

cat >/etc/vrdma/classes.conf <<'CLASSES'
[small]
tenant = shop
quota = qp=64,mr_bytes=1g
devices = 8
[spaced]
tenant = namespace
fabric = namespace
devices = 4
CLASSES
cat >"$T/cni/lab.conflist" <<CNI
{"cniVersion": "0.4.0", "name": "lab", "plugins": [{"type": "bridge", "bridge": "lab0", "isGateway": true, "ipMasq": false,
  "ipam": {"type": "host-local", "dataDir": "$T/cni-state", "ranges": [[{"subnet": "10.89.9.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
CNI
image=registry.local/vrdma/pod:1
"$here/image.py" "$T/image.tar" "$image" bash sh sleep cat ls grep id ib_write_bw ibv_devinfo 2>"$T/image.log" ||
  fail "no image: $(<"$T/image.log")"
start_hooks_daemon
ctl cdi generate
cri='[plugins."io.containerd.grpc.v1.cri"'
containerd_start "$cri]" '  enable_cdi = true' '  restrict_oom_score_adj = true' "  sandbox_image = \"$image\"" \
  "$cri.cni]" '  bin_dir = "/usr/lib/cni"' "  conf_dir = \"$T/cni\"" \
  "$cri.containerd.runtimes.runc]" '  runtime_type = "io.containerd.runc.v2"'
prlimit --pid "${PID[containerd]}" --memlock=0:0  # and so of containers
ctr_ images import "$T/image.tar" >"$T/import.log" 2>&1 || fail "ctr images import: $(<"$T/import.log")"
kubelet_start --runtime "$T/containerd.sock" --image "$image" --cgroup "/vr$$"
plugin_start plugin
becomes 20 small 8 8
becomes 5 spaced 4 4
say "the node has 8 devices of class small"

no_vdevices() { [[ $(ctl vdev list | wc -l) -eq 1 ]]; }
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
# spread SERVER CLIENT: 2,000 messages arrive. A client that is refused tries again: refused_again().
spread() {
  local _
  for _ in {1..5}; do
    traffic "$@" -n 2000
    wait_until 60 ended "${PID[client]}" || fail "the client in $2 does not end"
    if refused_again; then continue; fi
    both_end_well ib_write_bw
    say "ib_write_bw from $2 to $1: $(awk '$1 == 65536 { print $4 }' "$T/client.log") MB/s"
    return
  done
  fail "the client always comes before its server"
}
# endless SERVER CLIENT: there is traffic, which does not end by itself.
endless() {
  local _
  for _ in {1..5}; do
    traffic "$@" --run_infinitely -D 1
    wait_until 20 works_or_ended "$(vdev_of "$2")" || fail "there is no traffic from $2: $(<"$T/client.log")"
    if ! ended "${PID[client]}"; then return; fi
    refused_again || fail "there is no traffic: $(<"$T/client.log")"
  done
  fail "the client always comes before its server"
}
works_or_ended() { ended "${PID[client]}" || works "$1"; }

# ---- two pods -------------------------------------------------------------------------------------

say "two restricted pods of a namespace"
pod shop/one --limit vrdma.io/small=1
pod shop/two --limit vrdma.io/small=1
[[ -n $(of_pod shop/one id) && $(of_pod shop/one id) != "$(of_pod shop/two id)" ]] || fail "they have one id: $(of_pod shop/one id)"
# shellcheck disable=SC2016  # expanded in the pod
asked exec shop/one -- sh -c 'id -u; grep CapEff /proc/self/status; grep "locked memory" /proc/self/limits
  grep NoNewPrivs /proc/self/status; grep Seccomp: /proc/self/status; (: >/file) 2>/dev/null || echo read-only; ibv_devinfo -v'
for line in '^1000$' '^CapEff:\s*0*$' '^Max locked memory +0 +0 ' '^NoNewPrivs:\s*1$' '^Seccomp:\s*2$' '^read-only$' \
  'hca_id:\s*vrdma0' "GID.*::ffff:$(of_pod shop/one address)"; do
  grep -qE "$line" "$T/asked" || fail "a pod without '$line': $(<"$T/asked")"
done
spread shop/one shop/two
for name in one two; do
  of_labels=$(vdevices | grep " $(of_pod shop/$name sandbox) ")
  for label in class=small container_name=main pod_name=$name pod_namespace=shop "pod_uid=$(of_pod shop/$name uid)"; do
    [[ " $of_labels " == *" $label "* ]] || fail "shop/$name has no label $label: $of_labels"
  done
  ctl vdev list | grep -qE " shop/$name *$" || fail "vrdmactl vdev list does not show shop/$name: $(ctl vdev list)"
done

say "a container that is restarted gets the stored answer"
calls=$(ask calls)
before=$(vdev_of shop/two)
asked restart-container shop/two
[[ $(ask calls) == "$calls" ]] || fail "Allocate is called again"
[[ $(vdevices | wc -l) -eq 2 ]] || fail "there are not two vdevices: $(vdevices)"
say "the vdevice of shop/two was $before and is $(vdev_of shop/two)"
spread shop/two shop/one

say "a kubelet that restarts, with its directory emptied, knows its pods"
asked restart
becomes 5 small 8 8
asked restart-container shop/two
[[ $(ask calls) == "$calls" ]] || fail "Allocate is called again"
asked exec shop/two -- ibv_devinfo -d vrdma0

# ---- refusals -------------------------------------------------------------------------------------

say "a pod on the host's network is refused in a sentence"
refused_pod "vrdma: the container uses the host's network, which class 'small' does not allow" shop/host --limit vrdma.io/small=1 --host-network
asked delete shop/host
[[ $(vdevices | wc -l) -eq 2 ]] || fail "a vdevice is left: $(vdevices)"

# ---- deaths under traffic -------------------------------------------------------------------------

say "vrdmad and the plugin are killed under traffic"
endless shop/one shop/two
kill_daemon
kill_programs plugin
plugin_start plugin
start_daemon
wait_until 20 works_or_ended "$(vdev_of shop/two)" || fail "the traffic ends: $(<"$T/client.log")"
becomes 10 small 8 8
works "$(vdev_of shop/two)" || fail "the traffic has ended: $(<"$T/client.log")"
for name in client server; do
  ! ended "${PID[$name]}" || fail "the $name has ended: $(<"$T/$name.log")"
done
for name in one two; do asked restart-container shop/$name; done  # ends both
for name in client server; do reap $name 20; done

# ---- tenants --------------------------------------------------------------------------------------

say "pods of two namespaces, in classes of which each namespace is a tenant and a fabric"
pod shop/three --limit vrdma.io/spaced=1
pod shop/four --limit vrdma.io/spaced=1
pod lab/five --limit vrdma.io/spaced=1
for name in shop/three lab/five; do
  id=$(vdev_of "$name")
  [[ $(field_of "$id" tenant) == k8s/${name%/*} && $(field_of "$id" fabric) == k8s/${name%/*} ]] ||
    fail "$name is of tenant $(field_of "$id" tenant) in fabric $(field_of "$id" fabric)"
  asked exec "$name" -- ibv_devinfo -v
  gids=$(grep -o '::ffff:[0-9.]*' "$T/asked" | sort -u | xargs)
  [[ $gids == "::ffff:$(of_pod "$name" address)" ]] || fail "$name sees the GIDs $gids"
done
spread shop/three shop/four
traffic shop/three lab/five -n 2000
reap client 60
[[ $REAPED -ne 0 ]] || fail "a pod of another namespace reaches shop/three: $(<"$T/client.log")"
say "lab/five cannot connect to shop/three: $(grep -m 1 -iE 'error|unable|fail|unexpected' "$T/client.log")"
asked restart-container shop/three  # its server waits
reap server 20
for name in shop/three shop/four lab/five; do asked delete "$name"; done

# ---- the end --------------------------------------------------------------------------------------

say "nothing is left of pods that were deleted"
for name in one two; do asked delete shop/$name; done
wait_until 10 no_vdevices || fail "a vdevice outlives its pod: $(ctl vdev list)"
left() { find "$R/netns" "$R/sysfs" "$R/state" -mindepth 1 2>/dev/null; find "$T/device-plugins" -mindepth 1 ! -name '*.sock' ! -name kubelet_internal_checkpoint; }
nothing_left() { [[ -z $(left) ]]; }
wait_until 10 nothing_left || fail "files are left: $(left)"
