#!/bin/bash
# rootless.sh runc|crun: containers of a user's podman get vdevices. The hook runs as the user and asks root's vrdmad.
#
#     container of user vr        slirp4netns
#   +------------------------+
#   | vrdma0 ---- tap0 ======|====== the host
#   +------------------------+
here=$(realpath "$(dirname "$0")")
. "$here/lib.sh"
for program in podman "$1" newuidmap slirp4netns; do need "$program"; done
apart "$@"
setup
[[ -x $BUILD/lib/vrdma/vrdma-oci-hook ]] || skip "the hook is not built with a sanitizer"
# The last ends the process that keeps the user's namespaces.
user_stop() {
  of_user rm -f -t 0 -a >/dev/null 2>&1 || true
  of_user system migrate >/dev/null 2>&1 || true
}
trap 'status=$? command=$BASH_COMMAND; user_stop; podman_stop; finish "$status" "$command"' EXIT
RUNTIME=$1
own_etc
podman_start
start_hooks_daemon
printf '[mine]\ntenant = user\nusers = *\n' >/etc/vrdma/classes.conf
# Where the user may read, which a build directory need not permit.
mkdir "$T/installed"
cp -rL "$BUILD"/lib/vrdma/{vrdma-oci-hook,stubs} "$LIBRARIES"/lib*.so* "$T/installed"
ctl cdi generate -o - | sed "s#\"path\": \"$BUILD/lib/vrdma/#\"path\": \"$T/installed/#" >/etc/cdi/vrdma.json
make_image plain bookworm 'ldconfig -r .'
podman save -q -o "$T/plain.tar" localhost/plain >"$T/save.log" 2>&1 || fail "podman save: $(<"$T/save.log")"

useradd --create-home --home-dir "$T/home" vr >"$T/useradd.log" 2>&1 || fail "useradd: $(<"$T/useradd.log")"
install -d -o vr -m 700 "$T/runtime"
sed -i 's/^default_ulimits.*/default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]/' "$T/containers.conf"
chmod 644 "$T/plain.tar" "$T/containers.conf"
as_user() {
  setpriv --reuid vr --regid vr --init-groups env -i HOME="$T/home" XDG_RUNTIME_DIR="$T/runtime" PATH="$PATH" CONTAINERS_CONF="$T/containers.conf" \
    timeout 120 sh -c 'cd; exec "$@"' sh "$@"
}
of_user() { as_user podman --storage-driver overlay --runtime "$RUNTIME" "$@"; }
of_user load -q -i "$T/plain.tar" >"$T/load.log" 2>&1 || fail "podman load: $(<"$T/load.log")"
no_vdevices() { [[ $(ctl vdev list | wc -l) -eq 1 ]]; }

say "a container of the user sees one vdevice"
of_user run --rm --device vrdma.io/device=mine localhost/plain ibv_devinfo -d vrdma0 >"$T/devinfo.log" 2>&1 || fail "ibv_devinfo: $(<"$T/devinfo.log")"
wait_until 10 no_vdevices || fail "a vdevice outlives its container: $(ctl vdev list)"

say "a class that is not for the user is refused"
if of_user run --rm --device vrdma.io/device=default localhost/plain true >"$T/refused.log" 2>&1; then fail "a container of the class default starts"; fi
no_vdevices || fail "a vdevice is left: $(ctl vdev list)"
