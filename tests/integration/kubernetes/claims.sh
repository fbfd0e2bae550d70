#!/bin/bash
# claims.sh: pods that a kubelet starts with containerd 1.7 get vdevices by claims: the plugin as a DRA driver, vrdmad and the hook
# are real; kubelet.py and api_server.py imitate the kubelet, the API server and the scheduler.
#
#     claim shop/one: qp=32             bridge of CNI            claim shop/two
#   +-------------------------+                           +-----------------------+
#   | vrdma0, user 1000       |===========================| vrdma0                |
#   +-------------------------+                           +-----------------------+
here=$(realpath "$(dirname "$0")")
. "$here/lib.sh"
need openssl
need_pods "$@"
setup
. "$here/dra.lib.sh"
pods_setup
mount -t tmpfs tmpfs /run/netns
# Where container engines look for CDI files.
mount -t tmpfs tmpfs /run
mkdir -p /run/netns /run/cdi
CLAIM_FILES=/var/run/cdi

cat >/etc/vrdma/classes.conf <<'CLASSES'
[small]
tenant = namespace
fabric = namespace
quota = qp=64,mr_bytes=1g
devices = 8
CLASSES
start_hooks_daemon
ctl cdi generate
runtime_start '  enable_cdi = true'
import_image "$T/image.tar"
api_start
kubelet_start --runtime "$T/containerd.sock" --image "$POD_IMAGE" --cgroup "/vr$$" --root "$T/kubelet"
driver_start driver
driver_says 10 '^small HEALTHY True'
slices_become 10 1 default small

uid_of() { printf '0b51bbf2-0000-4000-8000-%012d' "$1"; }
one=$(uid_of 1) two=$(uid_of 2)
no_vdevices() { [[ $(ctl vdev list | wc -l) -eq 1 ]]; }

say "two restricted pods with a claim each: quota, traffic"
api claim shop/c1 "$one" small --capacity qp=32 --capacity vdevices=1 >/dev/null
api claim shop/c2 "$two" small >/dev/null
pod shop/one --claim "c1=$one"
pod shop/two --claim "c2=$two"
spread shop/one shop/two
limit_of() { # POD KIND
  ctl quota show "$(vdev_of "$1")" -o json | /usr/bin/python3 -c '
import json, sys
print(*(row["limit"] for one in json.load(sys.stdin) for row in one["quota"] if row["kind"] == sys.argv[1]))' "$2"
}
[[ $(limit_of shop/one qp) -eq 32 ]] || fail "the vdevice of shop/one has qp=$(limit_of shop/one qp)"
[[ $(limit_of shop/two qp) -eq 64 ]] || fail "the vdevice of shop/two has qp=$(limit_of shop/two qp)"

say "a claim of another namespace is refused"
[[ -e $(claim_file "$one") ]] || fail "there is no file"
share=$(api share shop/c1)
api claim lab/c9 "$(uid_of 9)" small >/dev/null
asked prepare lab/c9 "$(uid_of 9)"
# A pod of namespace shop with the CDI device of lab's claim.
refused_pod "vrdma: the pod is in namespace 'shop', and .* is for pods of namespace 'lab'" shop/thief --cdi "vrdma.io/claim=$(uid_of 9)-$(api share lab/c9)"
ask delete shop/thief >/dev/null 2>&1 || true
asked unprepare lab/c9 "$(uid_of 9)"

say "a claim that a container holds can be neither changed nor undone"
refused 'unprepare: claim shop/c1: ' unprepare shop/c1 "$one"
api claim shop/c1 "$one" small --capacity qp=16 >/dev/null
refused 'claim shop/c1: ' prepare shop/c1 "$one"
[[ $(claims | grep "^$one") == *"$share small qp=32"* ]] || fail "vrdmad has: $(claims)"

say "the driver is killed, and its files are removed, under traffic; a container restarts"
endless shop/one shop/two
kill_programs driver
rm /var/run/cdi/*
driver_start driver
wait_until 5 test -e "$(claim_file "$two")" || fail "the file is not written again"
wait_until 20 works_or_ended "$(vdev_of shop/two)" || fail "the traffic ends: $(<"$T/client.log")"
for name in client server; do
  ! ended "${PID[$name]}" || fail "the $name has ended: $(<"$T/$name.log")"
done
for name in one two; do asked restart-container shop/$name; done  # ends both; without a call to the driver
for name in client server; do reap $name 20; done
spread shop/two shop/one

say "vrdmad is replaced: the claims are as they were"
before=$(claims)
stop_daemon
start_daemon
[[ $(claims) == "$before" ]] || fail "vrdmad has: $(claims)"
asked restart-container shop/two
spread shop/one shop/two

say "the pods end: nothing is left"
driver_says 10 '^small HEALTHY True'
asked delete shop/one
asked delete shop/two
wait_until 10 no_vdevices || fail "a vdevice outlives its pod: $(ctl vdev list)"
[[ -z $(claims) && -z $(ls /var/run/cdi) ]] || fail "something is left: $(claims) $(ls /var/run/cdi)"

say "without the driver a pod does not start"
kill_programs driver
api claim shop/c3 "$(uid_of 3)" small >/dev/null
refused_pod 'FailedPrepareDynamicResources' shop/three --claim "c3=$(uid_of 3)"
no_vdevices || fail "a vdevice is there: $(ctl vdev list)"
