#!/bin/bash
# containerd.sh: containers of containerd get vdevices by vrdma-runtime in place of runc.
#
#     container in netns a                    container in netns b
#   +---------------------+                 +---------------------+
#   | vrdma0 ---- eth0 ===|===== veth ======|== eth0 ---- vrdma0  |
#   | 10.0.0.1            |                 | 10.0.0.2            |
#   +---------------------+                 +---------------------+
here=$(realpath "$(dirname "$0")")
. "$here/lib.sh"
for program in containerd ctr runc podman; do need $program; done
apart "$@"
setup
[[ -x $BUILD/lib/vrdma/vrdma-oci-hook ]] || skip "the hook is not built with a sanitizer"
trap 'status=$? command=$BASH_COMMAND; containerd_stop; podman_stop; finish "$status" "$command"' EXIT
own_etc
podman_start
start_hooks_daemon
netns_add a b
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
ip_in a route add default via 10.0.0.2
ip_in b route add default via 10.0.0.1
printf 'run-dir = "%s"\n' "$R" >/etc/vrdma/runtime.conf

containerd_start 'disabled_plugins = ["io.containerd.grpc.v1.cri"]'
make_image plain bookworm 'ldconfig -r .'
podman save -q -o "$T/plain.tar" localhost/plain >"$T/save.log" 2>&1 || fail "podman save: $(<"$T/save.log")"
ctr_ images import "$T/plain.tar" >"$T/import.log" 2>&1 || fail "ctr images import: $(<"$T/import.log")"
image=$(ctr_ images list -q)

# run NETNS ID [OPTION]... -- COMMAND...
run() {
  local space=$1 id=$2 options=()
  shift 2
  while [[ $1 != -- ]]; do options+=("$1"); shift; done
  ctr_ run --rm --with-ns "network:/run/netns/$(ns "$space")" --runc-binary "$BUILD/sbin/vrdma-runtime" "${options[@]}" "$image" "$id" "${@:2}"
}

say "$(containerd --version), $(runc --version | head -1)"
say "a container sees one vdevice; its environment chooses nothing"
run a c1 --env VRDMA_DEVICE=evil --env LD_PRELOAD=/evil.so -- ibv_devinfo -d vrdma0 >"$T/devinfo.log" 2>&1 || fail "ibv_devinfo: $(<"$T/devinfo.log")"
no_vdevices() { [[ $(ctl vdev list | wc -l) -eq 1 ]]; }
wait_until 10 no_vdevices || fail "a vdevice outlives its container: $(ctl vdev list)"

say "two containers"
run a server -- ib_write_lat -F -x 1 >"$T/server.log" 2>&1 &
PID[server]=$!
listens_in_a() { $(enter a) cat /proc/net/tcp /proc/net/tcp6 | grep -E "$(printf ':%04X' "$PORT") [0-9A-F]+:0000 0A " >/dev/null; }
wait_until 20 listens_in_a || fail "the server does not listen: $(<"$T/server.log")"
run b client -- ib_write_lat -F -x 1 10.0.0.1 >"$T/client.log" 2>&1 || fail "ib_write_lat: $(<"$T/client.log")"
reap server 10
[[ $REAPED -eq 0 ]] || fail "the server ends with $REAPED: $(<"$T/server.log")"
say "ib_write_lat: $(awk '$1 == 2 { print $6 }' "$T/client.log") us"
wait_until 10 no_vdevices || fail "a vdevice outlives its container: $(ctl vdev list)"
