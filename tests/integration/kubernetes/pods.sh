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
need_pods "$@"
setup
pods_setup
mount -t tmpfs tmpfs /run/netns

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
[wired]
tenant = namespace
fabric = namespace
reach = wire
devices = 2
CLASSES
start_hooks_daemon
ctl cdi generate
runtime_start '  enable_cdi = true'
import_image "$T/image.tar"
kubelet_start --runtime "$T/containerd.sock" --image "$POD_IMAGE" --cgroup "/vr$$"
plugin_start plugin
becomes 20 small 8 8
becomes 5 spaced 4 4
say "the node has 8 devices of class small"

no_vdevices() { [[ $(ctl vdev list | wc -l) -eq 1 ]]; }

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

say "the node's filter sees the packets of pods in a class on the wire, and not those of others"
nft -f - <<'END'
table bridge filter { chain forward { type filter hook forward priority 0; ether type ip udp dport 4791 counter; }
}
END
seen() { nft list table bridge filter | grep -oE 'packets [0-9]+' | cut -d' ' -f2; }
spread shop/one shop/two
[[ $(seen) -eq 0 ]] || fail "it sees $(seen) packets of class small"
pod bank/six --limit vrdma.io/wired=1
pod bank/seven --limit vrdma.io/wired=1
[[ $(ctl fabric list k8s/bank | awk 'END { print $2 }') == wire ]] || fail "the fabrics: $(ctl fabric list)"
spread bank/six bank/seven
[[ $(seen) -gt 2000 ]] || fail "it sees $(seen) packets of class wired"
say "it sees $(seen) packets"
for name in six seven; do asked delete bank/$name; done
nft delete table bridge filter

# ---- the end --------------------------------------------------------------------------------------

say "nothing is left of pods that were deleted"
for name in one two; do asked delete shop/$name; done
wait_until 10 no_vdevices || fail "a vdevice outlives its pod: $(ctl vdev list)"
left() { find "$R/netns" "$R/sysfs" "$R/state" -mindepth 1 2>/dev/null; find "$T/device-plugins" -mindepth 1 ! -name '*.sock' ! -name kubelet_internal_checkpoint; }
nothing_left() { [[ -z $(left) ]]; }
wait_until 10 nothing_left || fail "files are left: $(left)"
