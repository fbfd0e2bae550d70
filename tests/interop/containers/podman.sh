#!/bin/bash
# podman.sh runc|crun: containers of podman get vdevices by one option.
#
#     container               podman's bridge              container
#   +---------------------+                              +---------------------+
#   | vrdma0 ---- eth0 ===|=============================|== eth0 ---- vrdma0  |
#   | ib_write_lat        |                              | ib_write_lat IP      |
#   +---------------------+                              +---------------------+
here=$(realpath "$(dirname "$0")")
. "$here/lib.sh"
need podman
need "$1"
[[ -x /usr/lib/podman/netavark ]] || skip "netavark is not installed"
apart "$@"
setup
[[ -x $BUILD/lib/vrdma/vrdma-oci-hook ]] || skip "the hook is not built with a sanitizer"
trap 'status=$? command=$BASH_COMMAND; podman_stop; finish "$status" "$command"' EXIT
RUNTIME=$1
own_etc
podman_start
start_hooks_daemon
printf '[red]\ntenant = red\n' >/etc/vrdma/classes.conf
ctl cdi generate
make_image plain bookworm 'ldconfig -r .'
podman network create --disable-dns lab >"$T/network.log" 2>&1 || skip "podman cannot make a network here: $(tail -1 "$T/network.log")"

no_vdevices() { [[ $(ctl vdev list | wc -l) -eq 1 ]]; }

say "podman $(podman version -f '{{.Client.Version}}'), $("$RUNTIME" --version | head -1), image $(podman image inspect -f '{{.Digest}}' "$IMAGE")"
say "a container sees one vdevice, with the address of its bridge"
run default -- ibv_devinfo -v >"$T/devinfo.log" 2>&1 || fail "ibv_devinfo: $(<"$T/devinfo.log")"
grep -q 'hca_id:.vrdma0' "$T/devinfo.log" && grep -q 'GID.*::ffff:10\.' "$T/devinfo.log" || fail "ibv_devinfo: $(<"$T/devinfo.log")"
run default -- bash -c 'cat /sys/class/infiniband/vrdma0/ports/1/state && : <>/dev/infiniband/vrdma0 && ! env | grep LD_' >"$T/sysfs.log" 2>&1 ||
  fail "sysfs: $(<"$T/sysfs.log")"
wait_until 10 no_vdevices || fail "a vdevice outlives its container: $(ctl vdev list)"

say "two containers, each a tenant of its own"
containers_pair default default
say "two containers of one tenant"
containers_pair red red
[[ $(stat_of tenant/red mr_reached_unseen) -gt 0 ]] || fail "its memory is in place, although podman's seccomp profile forbids userfaultfd(2)"
say "the same with userfaultfd(2) for a program's own pages in podman's seccomp profile"
before=$(stat_of tenant/red mr_reached_unseen)
ctl seccomp >"$T/seccomp.json"
in_place=(--security-opt "seccomp=$T/seccomp.json")
containers_pair red red "${in_place[@]}"
[[ $(stat_of tenant/red mr_reached_unseen) -eq $before ]] || fail "its memory is reached"
[[ $(stat_of tenant/red work_requests_direct) -gt 0 ]] || fail "the two are not linked directly"
gcc -o "$T/userfaultfd" "$here/userfaultfd.c"
run default "${in_place[@]}" -v "$T/userfaultfd:/userfaultfd:ro" -- /userfaultfd >"$T/uffd.log" || fail "the new profile: $(<"$T/uffd.log")"
run default -v "$T/userfaultfd:/userfaultfd:ro" -- /userfaultfd >"$T/uffd.log" && fail "podman's profile: $(<"$T/uffd.log")"
say "without any privilege"
hardened=(--cap-drop=ALL --security-opt no-new-privileges --ulimit memlock=0 --ulimit nofile=1024 --ulimit nproc=1024 --read-only --user 1000)
containers_pair default default "${hardened[@]}"

say "the containers of a pod share a vdevice"
podman pod create --name pod --network lab >"$T/pod.log" 2>&1 || fail "podman pod: $(<"$T/pod.log")"
for name in first second; do
  podman run -d --pod pod --name $name --device vrdma.io/device=default "$IMAGE" sleep 100 >"$T/pod.log" 2>&1 || fail "$name of a pod: $(<"$T/pod.log")"
done
for name in first second; do
  podman exec $name ibv_devinfo -d vrdma0 >"$T/pod.log" 2>&1 || fail "ibv_devinfo in $name: $(<"$T/pod.log")"
done
[[ $(ctl vdev list | wc -l) -eq 2 ]] || fail "not one vdevice: $(ctl vdev list)"
podman rm -f -t 0 first >/dev/null
podman exec second ibv_devinfo -d vrdma0 >"$T/pod.log" 2>&1 || fail "ibv_devinfo after the first has ended: $(<"$T/pod.log")"
podman pod rm -f pod >"$T/pod.log" 2>&1 || true
wait_until 10 no_vdevices || fail "a vdevice outlives its pod: $(ctl vdev list)"

say "a user namespace, where podman makes the network after all hooks: the vdevice waits for it"
mapped=(--uidmap 0:100000:65536 --gidmap 0:100000:65536)
run default "${mapped[@]}" -d --name mapped -- sleep 100 >"$T/mapped.log" 2>&1 || fail "a container with a user namespace: $(<"$T/mapped.log")"
mapped_has_device() { podman exec mapped ibv_devinfo -v -d vrdma0 >"$T/mapped.log" 2>&1 && grep -q 'GID.*::ffff:10\.' "$T/mapped.log"; }
wait_until 10 mapped_has_device || fail "ibv_devinfo in a user namespace: $(<"$T/mapped.log")"
init=$(podman inspect -f '{{.State.Pid}}' mapped)
for event in "created on no netdev yet" completed; do
  grep -q "vdevice pid:$init/vrdma0: $event" "$T/vrdmad.log" || fail "the log does not say '$event': $(grep "pid:$init/" "$T/vrdmad.log")"
done
podman rm -f -t 0 mapped >/dev/null
wait_until 10 no_vdevices || fail "a vdevice outlives its container: $(ctl vdev list)"
podman pod create --name pod "${mapped[@]}" --network lab >"$T/pod.log" 2>&1 || fail "podman pod: $(<"$T/pod.log")"
for name in first second; do
  podman run -d --pod pod --name $name --device vrdma.io/device=default "$IMAGE" sleep 100 >"$T/pod.log" 2>&1 || fail "$name of a pod: $(<"$T/pod.log")"
  podman exec $name ibv_devinfo -d vrdma0 >"$T/pod.log" 2>&1 || fail "ibv_devinfo in $name: $(<"$T/pod.log")"
done
[[ $(ctl vdev list | wc -l) -eq 2 ]] || fail "not one vdevice: $(ctl vdev list)"
podman pod rm -f pod >"$T/pod.log" 2>&1 || true
wait_until 10 no_vdevices || fail "a vdevice outlives its container: $(ctl vdev list)"

say "a network that is disconnected and connected again: the vdevice waits for it"
run default -d --name mover -- sleep 100 >"$T/mover.log" 2>&1 || fail "a container: $(<"$T/mover.log")"
has_device() { podman exec mover ibv_devinfo -v -d vrdma0 >"$T/mover.log" 2>&1 && grep -q 'GID.*::ffff:10\.' "$T/mover.log"; }
has_device || fail "ibv_devinfo: $(<"$T/mover.log")"
podman network disconnect lab mover >"$T/mover.log" 2>&1 || fail "disconnect: $(<"$T/mover.log")"
waits_for_network() { ctl vdev list | grep -q 'vrdma0.*PENDING'; }
wait_until 10 waits_for_network || fail "the vdevice does not wait: $(ctl vdev list)"
podman network connect lab mover >"$T/mover.log" 2>&1 || fail "connect: $(<"$T/mover.log")"
wait_until 10 has_device || fail "ibv_devinfo: $(<"$T/mover.log"); $(ctl vdev list)"
podman rm -f -t 0 mover >/dev/null
wait_until 10 no_vdevices || fail "a vdevice outlives its container: $(ctl vdev list)"

say "a volume with shared propagation stays as it is"
mkdir -p "$T/volume/lib"
mount --bind "$T/volume" "$T/volume"
mount --make-shared "$T/volume"
root_of bookworm
library=$(ls -d "$ROOT"/usr/lib/*-linux-gnu/libibverbs.so.1)
cp -L "$library" "$T/volume/lib/libibverbs.so.1"
run default -v "$T/volume:/opt/volume:rshared" -- cat /run/vrdma/notes >"$T/shared.log" 2>&1 || fail "a shared volume: $(<"$T/shared.log")"
grep -q 'shared propagation' "$T/shared.log" || fail "no note about the volume: $(<"$T/shared.log")"
cmp "$library" "$T/volume/lib/libibverbs.so.1" || fail "the hook covered a file of the host"
umount "$T/volume"

say "the host's network is refused"
if podman run --rm --network host --device vrdma.io/device=default "$IMAGE" true >"$T/host.log" 2>&1; then fail "a container with the host's network starts"; fi

say "vrdma-runtime in place of the option, and beside it"
hook=$BUILD/lib/vrdma/vrdma-oci-hook
printf 'class = "red"\nruntime = "%s"\nrun-dir = "%s"\n' "$(type -P "$RUNTIME")" "$R" >/etc/vrdma/runtime.conf
real=$RUNTIME
RUNTIME=$BUILD/sbin/vrdma-runtime
podman run --rm --network lab -e VRDMA_DEVICE=evil "$IMAGE" ibv_devinfo -d vrdma0 >"$T/runtime.log" 2>&1 ||
  fail "vrdma-runtime: $(<"$T/runtime.log")"
run default -- bash -c '[[ $(ls /sys/class/infiniband) == vrdma0 ]]' >"$T/runtime.log" 2>&1 || fail "both ways: $(<"$T/runtime.log")"
RUNTIME=$real

say "how long the hook takes"
cat >"$T/timed" <<END
#!/bin/bash
began=\${EPOCHREALTIME/./}
"$hook" "\$@"
status=\$?
echo \$((\${EPOCHREALTIME/./} - began)) >>$T/times
exit \$status
END
chmod 755 "$T/timed"
sed -i "s#\"path\": \"$hook\"#\"path\": \"$T/timed\"#" /etc/cdi/vrdma.json
for _ in {1..20}; do run default -- true >/dev/null 2>&1 || fail "a container for the measurement"; done
[[ $(wc -l <"$T/times") -eq 40 ]] || fail "$(wc -l <"$T/times") calls of the hook instead of 40"
say "createRuntime: $(sed -n 'p;n' "$T/times" | sort -n | awk '{ t[NR] = $1 / 1000 } END { printf "p50 %.1f ms, max %.1f ms, of %d", t[int((NR + 1) / 2)], t[NR], NR }')"
ctl cdi generate

wait_until 10 no_vdevices || fail "a vdevice outlives its container: $(ctl vdev list)"
