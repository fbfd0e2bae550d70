#!/bin/bash
# checkpoint.sh FLOW
here=$(realpath "$(dirname "$0")")
. "$here/lib.sh"
need podman
need runc
[[ -x /usr/lib/podman/netavark ]] || skip "netavark is not installed"
apart "$@"
setup
[[ -x $BUILD/lib/vrdma/vrdma-oci-hook ]] || skip "the hook is not built with a sanitizer"
trap 'status=$? command=$BASH_COMMAND; podman_stop; finish "$status" "$command"' EXIT
root_of trixie criu
mkdir "$T/path"
cat >"$T/path/criu" <<END
#!/bin/sh
PATH=$BUILD/bin:\$PATH VRDMA_RUN_DIR=$R exec "$ROOT"/usr/lib64/ld-linux-x86-64.so.2 --library-path "$ROOT/usr/lib/x86_64-linux-gnu" "$ROOT/usr/sbin/criu" "\$@" --libdir "$BUILD/lib/criu"
END
chmod 755 "$T/path/criu"
PATH=$T/path:$PATH
own_etc
podman_start
start_hooks_daemon
ctl cdi generate
make_image plain bookworm 'ldconfig -r .'
podman network create --disable-dns lab >"$T/network.log" 2>&1 || skip "podman cannot make a network here: $(tail -1 "$T/network.log")"
cp "$1" "$T/lib/flow"
[[ -z ${TRY:-} ]] || . "$TRY"
