#!/bin/bash
# images.sh runc|crun: which images get a vdevice by podman, and that hostile ones change nothing on the host. Prints each
# image with the digest of its layer; the same files have the same digest.
#
# integration/oci_hook.sh has more hostile images, without a container engine.
here=$(realpath "$(dirname "$0")")
. "$here/lib.sh"
for program in podman "$1" gcc busybox; do need "$program"; done
[[ -x /usr/lib/podman/netavark ]] || skip "netavark is not installed"
apart "$@"
setup
[[ -x $BUILD/lib/vrdma/vrdma-oci-hook ]] || skip "the hook is not built with a sanitizer"
trap 'status=$? command=$BASH_COMMAND; set +e; podman_stop; rm -rf /tmp/vrdma-evil*; finish "$status" "$command"' EXIT
RUNTIME=$1
mount -t tmpfs tmpfs /run/netns  # podman's namespaces are the test's
own_etc
podman_start
start_hooks_daemon
ctl cdi generate
rm -rf /tmp/vrdma-evil*
podman network create --disable-dns lab >"$T/network.log" 2>&1 || skip "podman cannot make a network here: $(tail -1 "$T/network.log")"
no_vdevices() { [[ $(ctl vdev list | wc -l) -eq 1 ]]; }

# What a hook that left a container's root would change.
host_state() {
  find "$T/etc" -mindepth 1 -printf '%P %y %s\n' | sort  # all that is changed in /etc
  md5sum /etc/ld.so.cache /usr/lib/*-linux-gnu/lib{ibverbs,rdmacm}.so.1
  ls -d {,/tmp,/run,/opt}/vrdma-evil* 2>/dev/null || true
  mounts | grep -v "^$T/"
}
TABLE=()
# image WHAT NAME RELEASE [COMMAND]: makes it, as the next row of the table.
image() {
  say "$1"
  make_image "${@:2}"
  IMAGE=localhost/$2
  ROW="$1 | $(podman image inspect -f '{{index .RootFS.Layers 0}}' "$IMAGE" | cut -c 8-19)"
}
result() { # SENTENCE: of the image
  wait_until 10 no_vdevices || fail "a vdevice outlives its container: $(ctl vdev list)"
  [[ $(host_state) == "$BEFORE" ]] || fail "$IMAGE changes the host: $(diff <(echo "$BEFORE") <(host_state))"
  TABLE+=("| $ROW | $1 |")
}
hardened=(--cap-drop=ALL --security-opt no-new-privileges --ulimit memlock=0 --ulimit nofile=1024 --ulimit nproc=1024 --read-only --user 1000)

say "podman $(podman version -f '{{.Client.Version}}'), $("$RUNTIME" --version | head -1)"
make_image warm bookworm
IMAGE=localhost/warm
run default -- true >"$T/warm.log" 2>&1 || fail "no container starts: $(<"$T/warm.log")"
BEFORE=$(host_state)

declare -A NUMBERS=([bullseye]=11 [bookworm]=12 [trixie]=13)
for release in bullseye bookworm trixie; do
  image "Debian ${NUMBERS[$release]}" "$release" "$release" 'ldconfig -r .'
  containers_pair default default
  containers_pair default default "${hardened[@]}"
  result "ib_write_lat between two; also read-only, without privileges, as user 1000"
done
# In an image: programs, and private copies of the image's library. A wheel's copy has a hash in its name.
add_programs() {
  local renamed=libibverbs-1de1263b.so.1.14.48.0 original wheel=opt/venv/lib/python3.11/site-packages/app.libs
  original=$(realpath usr/lib/*-linux-gnu/libibverbs.so.1)
  mkdir -p opt/rpath/lib opt/runpath/lib opt/preset "$wheel"
  cp "$original" opt/rpath/lib/libibverbs.so.1
  cp "$original" opt/runpath/lib/libibverbs.so.1
  cp "$original" opt/preset/libibverbs.so.1
  cp "$original" "$wheel/$renamed"
  echo 'IBVERBS_1.1 { ibv_get_device_list; };' >"$T/renamed.map"
  echo 'void** ibv_get_device_list(int* n) { (void)n; return 0; }' |
    gcc -shared -fPIC -Wl,-soname,$renamed -Wl,--version-script,"$T/renamed.map" -o "$T/renamed.so" -x c -
  gcc -o opt/finds "$here/finds.c"
  gcc -DLINKED -o opt/linked "$here/finds.c" -l:libibverbs.so.1
  gcc -DLINKED -Wl,--disable-new-dtags,-rpath,/opt/rpath/lib -o opt/by_rpath "$here/finds.c" -l:libibverbs.so.1
  gcc -DLINKED -Wl,--enable-new-dtags,-rpath,/opt/runpath/lib -o opt/by_runpath "$here/finds.c" -l:libibverbs.so.1
  gcc -DLINKED -Wl,--disable-new-dtags,-rpath,"/$wheel" -o opt/by_wheel "$here/finds.c" "$T/renamed.so"
}
# finds_all: in $IMAGE, and all programs find a device.
finds_all() {
  run default -e LD_LIBRARY_PATH=/opt/preset -- /opt/linked >"$T/finds.log" 2>&1 || fail "LD_LIBRARY_PATH: $(<"$T/finds.log")"
  grep -q ^/opt/preset/ "$T/finds.log" || fail "LD_LIBRARY_PATH does not count: $(<"$T/finds.log")"
  run default -- bash -c '/opt/linked && /opt/finds libibverbs.so && /opt/finds libibverbs.so.1 && /opt/by_rpath && /opt/by_runpath && /opt/by_wheel' \
    >"$T/finds.log" 2>&1 || fail "a program finds no device: $(<"$T/finds.log")"
  [[ $(cut -d / -f 2,3 "$T/finds.log" | xargs) == "run/vrdma run/vrdma run/vrdma opt/rpath opt/runpath opt/venv" ]] ||
    fail "programs find other files: $(<"$T/finds.log")"
}
every_way="all find a device: linked, dlopen, RPATH, RUNPATH, LD_LIBRARY_PATH, a renamed copy in site-packages/*.libs"
image "12 with private copies" programs bookworm 'add_programs; ldconfig -r .'
finds_all
result "$every_way"
image "12 with private copies, without ld.so.cache" programs_without_cache bookworm add_programs
finds_all
result "$every_way"
image "12 without libibverbs and librdmacm" no_libibverbs bookworm 'add_programs; rm usr/lib/*-linux-gnu/lib{ibverbs,rdmacm}.so*; ldconfig -r .'
run default -- bash -c '/opt/linked && /opt/finds libibverbs.so' >"$T/finds.log" 2>&1 || fail "an image without libibverbs: $(<"$T/finds.log")"
result "a linked program and dlopen find a device"

# refused SENTENCE: a container of $IMAGE is. crun does not show what a hook says, but the log of vrdmad has it.
refused() {
  local lines
  lines=$(wc -l <"$T/vrdmad.log")
  if run default -- true >"$T/evil.log" 2>&1; then fail "a container of $IMAGE starts"; fi
  tail -n +$((lines + 1)) "$T/vrdmad.log" | grep -q "gets no vdevice: .*$1" || fail "the log does not say '$1'"
}

# ---- hostile ------------------------------------------------------------------------------------

image "ld.so.cache is a link to /proc/1/root/tmp/..." evil_cache bookworm 'ldconfig -r . && rm etc/ld.so.cache && ln -s /proc/1/root/tmp/vrdma-evil etc/ld.so.cache'
run default -- bash -c 'cat /run/vrdma/notes && ibv_devinfo -d vrdma0' >"$T/evil.log" 2>&1 || fail "a container: $(<"$T/evil.log")"
grep -q '^/etc/ld.so.cache stays as it is' "$T/evil.log" || fail "the hook says nothing of the link: $(<"$T/evil.log")"
result "has a device; the link stays as it is, with a note"

image "/run/vrdma is a link to /proc/1/root/tmp/..." evil_run bookworm 'ldconfig -r . && rm -rf run/vrdma && ln -s /proc/1/root/tmp/vrdma-evil run/vrdma'
refused 'open /run/vrdma of the container'
result "is refused: open /run/vrdma of the container"

image "a library is a FIFO" evil_fifo bookworm 'ldconfig -r . && for l in usr/lib/*-linux-gnu/lib{ibverbs,rdmacm}.so.1; do rm "$l" && mkfifo "$l"; done'
run default -- bash -c '[[ -e /run/vrdma/lib/libibverbs.so.1 && -p $(echo /usr/lib/*-linux-gnu/libibverbs.so.1) ]]' >"$T/evil.log" 2>&1 ||
  fail "a container: $(<"$T/evil.log")"
result "starts; the hook does not open the FIFO"

image "ld.so.cache is a FIFO" evil_fifo_cache bookworm 'ldconfig -r . && rm etc/ld.so.cache && mkfifo etc/ld.so.cache && cp /bin/busybox bin/'
run default -- /bin/busybox grep 'no regular file' /run/vrdma/notes >"$T/evil.log" 2>&1 || fail "a container: $(<"$T/evil.log")"
result "starts; the FIFO stays as it is, with a note"

# The library leaves a file where it is loaded.
add_evil() {
  echo '#include <fcntl.h>
    __attribute__((constructor)) static void leave(void) { open("/tmp/vrdma-evil-preload", O_CREAT | O_WRONLY, 0644); }' |
    gcc -shared -fPIC -o evil.so -x c -
}
CHANGES=(-c 'ENV LD_PRELOAD=/evil.so' -c 'ENV VRDMA_DEVICE=evil')
image "LD_PRELOAD in the image's environment" evil_preload bookworm 'add_evil; ldconfig -r .'
CHANGES=()
run default -- bash -c 'ls /tmp/vrdma-evil-preload && ibv_devinfo -d vrdma0' >"$T/evil.log" 2>&1 || fail "a container: $(<"$T/evil.log")"
result "has a device; the hook loads nothing"

# annotated NAME ANNOTATION...: localhost/NAME is $IMAGE with annotations in its manifest.
annotated() {
  local name=$1 annotations=() annotation
  for annotation in "${@:2}"; do annotations+=(--annotation "$annotation"); done
  echo "FROM $IMAGE" >"$T/Containerfile"
  podman build -q --format oci --pull=never "${annotations[@]}" -t "localhost/$name" -f "$T/Containerfile" "$T/podman" >"$T/build.log" 2>&1 ||
    fail "podman build: $(<"$T/build.log")"
  IMAGE=localhost/$name
}
image "annotations name a tenant, a fabric, a class" plain bookworm 'ldconfig -r .'
annotated evil_tenant vrdma.io/tenant=evil vrdma.io/fabric=evil vrdma.io/class=evil vrdma.io/allow=raw-packet
run default -d --name evil -- sleep 100 >"$T/evil.log" 2>&1 || fail "a container: $(<"$T/evil.log")"
ctl vdev list -o json >"$T/list.json"
! grep -q 'evil\|raw-packet' "$T/list.json" && grep -q '"fabric": "containers"' "$T/list.json" && grep -q '"class": "default"' "$T/list.json" ||
  fail "the annotations count: $(<"$T/list.json")"
podman rm -f -t 0 evil >"$T/evil.log" 2>&1
result "has a device of the class that the option names, in its fabric, as a tenant of its own"

image "an annotation names the device" plain2 bookworm 'ldconfig -r .'
annotated evil_name vrdma.io/name=mlx5_0
refused 'lets no container choose it'
result "is refused: the class lets no container choose it"

say "passed"
echo "| image | digest | result |"
echo "|---|---|---|"
printf '%s\n' "${TABLE[@]}"
