#!/bin/bash
# docker.sh: containers of a Docker before 25, which knows no CDI, get vdevices by vrdma-runtime. dockerd, its containerd,
# its bridge and all that they write are the test's.
#
#     container               docker0              container
#   +---------------------+                      +---------------------+
#   | vrdma0 ---- eth0 ===|======================|== eth0 ---- vrdma0  |
#   | ib_write_lat        |                      | ib_write_lat IP      |
#   +---------------------+                      +---------------------+
here=$(realpath "$(dirname "$0")")
. "$here/lib.sh"
for program in dockerd docker containerd ctr runc; do need $program; done
apart "$@"
setup
[[ -x $BUILD/lib/vrdma/vrdma-oci-hook ]] || skip "the hook is not built with a sanitizer"
docker_place
own_etc
start_hooks_daemon
printf '[small]\ntenant = shop\n[large]\ntenant = large\n' >/etc/vrdma/classes.conf
printf 'class = "large"\nrun-dir = "%s"\n' "$R" >/etc/vrdma/runtime.conf
cat >"$T/daemon.json" <<END
{"runtimes": {
  "vrdma": {"path": "$BUILD/sbin/vrdma-runtime", "runtimeArgs": ["--vrdma-class=small"]},
  "vrdma-large": {"path": "$BUILD/sbin/vrdma-runtime"}}}
END
docker_start --config-file "$T/daemon.json" --bip 10.89.7.1/24 --userland-proxy=false
make_image plain bookworm 'ldconfig -r .'
image=localhost/plain
no_vdevices() { [[ $(ctl vdev list | wc -l) -eq 1 ]]; }
# run RUNTIME [OPTION]... -- COMMAND...
run() {
  local runtime=$1 options=()
  shift
  while [[ $1 != -- ]]; do options+=("$1"); shift; done
  docker_ run --rm --runtime "$runtime" "${options[@]}" "$image" "${@:2}"
}
class_and_tenant() { ctl vdev list -o json | python3 -c 'import json, sys; v, = json.load(sys.stdin); print(v["labels"]["class"], v["tenant"])'; }

say "Docker $(docker_ version -f '{{.Server.Version}}'), $(runc --version | head -1), image $(docker_ image inspect -f '{{.Id}}' "$image")"
say "a container of another runtime has no device"
if run runc -- ibv_devinfo -d vrdma0 >"$T/plain.log" 2>&1; then fail "a container without vrdma-runtime has a device"; fi
say "a container sees one vdevice, with the address of its bridge"
run vrdma -- ibv_devinfo -v >"$T/devinfo.log" 2>&1 || fail "ibv_devinfo: $(<"$T/devinfo.log")"
grep -q 'hca_id:.vrdma0' "$T/devinfo.log" && grep -q 'GID.*::ffff:10\.89\.7\.' "$T/devinfo.log" || fail "ibv_devinfo: $(<"$T/devinfo.log")"
wait_until 10 no_vdevices || fail "a vdevice outlives its container: $(ctl vdev list)"

say "the class is that of the configuration, whatever the container says"
for case in "vrdma small shop" "vrdma-large large large"; do
  read -r runtime class tenant <<<"$case"
  run "$runtime" -d --name chooses -e VRDMA_DEVICE=evil -e VRDMA_CLASS=evil -e VRDMA_RUN_DIR=/evil -e LD_PRELOAD=/evil.so --label vrdma.io/device=evil \
    --label vrdma.io/class=evil -- sleep 100 >"$T/chooses.log" 2>&1 || fail "$runtime: $(<"$T/chooses.log")"
  got=$(class_and_tenant)
  [[ $got == "$class $tenant" ]] || fail "$runtime: the class and tenant are $got"
  docker_ exec chooses env -i ibv_devinfo -d vrdma0 >"$T/devinfo.log" 2>&1 || fail "$runtime: ibv_devinfo: $(<"$T/devinfo.log")"
  docker_ rm -f chooses >/dev/null
  wait_until 10 no_vdevices || fail "a vdevice outlives its container: $(ctl vdev list)"
done

# pair OPTION...: ib_write_lat in two containers, both with the options.
listens_in_server() { cat "/proc/$init/net/tcp" "/proc/$init/net/tcp6" | grep -E "$(printf ':%04X' "$PORT") [0-9A-F]+:0000 0A " >/dev/null; }
pair() {
  run vrdma "$@" -d --name server -- ib_write_lat -F -x 1 >"$T/server.log" 2>&1 || fail "the server is not started: $(<"$T/server.log")"
  init=$(docker_ inspect -f '{{.State.Pid}}' server)
  wait_until 20 listens_in_server || fail "the server does not listen: $(docker_ logs server 2>&1)"
  address=$(docker_ inspect -f '{{.NetworkSettings.IPAddress}}' server)
  run vrdma "$@" -- ib_write_lat -F -x 1 "$address" >"$T/client.log" 2>&1 || fail "ib_write_lat $address: $(<"$T/client.log")"
  say "ib_write_lat: $(awk '$1 == 2 { print $6 }' "$T/client.log") us"
  wait_until 10 no_vdevices || fail "a vdevice outlives its container: $(ctl vdev list)"
}
say "two containers, without any privilege"
hardened=(--cap-drop=ALL --security-opt no-new-privileges --ulimit memlock=0 --read-only --user 1000)
pair "${hardened[@]}"

say "with userfaultfd(2) for a program's own pages: podman's profile, whose form Docker takes"
if [[ -e /usr/share/containers/seccomp.json ]]; then
  [[ $(stat_of tenant/shop mr_reached_unseen) -gt 0 ]] || fail "memory is in place, although Docker's profile forbids userfaultfd(2)"
  before=$(stat_of tenant/shop mr_reached_unseen)
  ctl seccomp /usr/share/containers/seccomp.json >"$T/seccomp.json"
  pair "${hardened[@]}" --security-opt "seccomp=$T/seccomp.json"
  [[ $(stat_of tenant/shop mr_reached_unseen) -eq $before ]] || fail "memory is reached"
else
  say "podman is not installed: no profile"
fi

say "a refusal is what the user sees"
printf '[large]\ntenant = large\n' >/etc/vrdma/classes.conf
if run vrdma -- true >"$T/refused.log" 2>&1; then fail "a container of a class that does not exist starts"; fi
grep -q "there is no class 'small'" "$T/refused.log" || fail "docker says: $(<"$T/refused.log")"
no_vdevices || fail "a vdevice is left: $(ctl vdev list)"
