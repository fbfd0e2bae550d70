#!/bin/bash
# oci_hook.sh: vrdma-oci-hook without a container runtime: what it mounts, which images it resists, how it
# fails. oci_container.py makes the containers, oci_server.py answers for vrdmad.
#
#     netns a                                    netns b
#   +------------------------------------+     +------------------+
#   | container: own root, /sys, /dev     |     | container        |
#   |   va ---- eth0 =====================|veth=|= eth0 ---- vb    |
#   +------------------------------------+     +------------------+
here=$(realpath "$(dirname "$0")")
. "$here/lib.sh"
# The images' mounts end with the test, also if it is killed.
if [[ -z ${VRDMA_APART:-} ]]; then
  unshare --mount --propagation private true 2>/dev/null ||
    skip "/ is no mount point (a chroot), so that mounts could not be kept to the test"
  VRDMA_APART=1 exec unshare --mount --propagation private "$0"
fi
setup
hook_program=$BUILD/lib/vrdma/vrdma-oci-hook
[[ -x $hook_program ]] || skip "the hook is not built with a sanitizer"
start_daemon
two_vdevices mediated
multiarch=$(gcc -print-multiarch)

# ---- an installation, and a server in place of vrdmad ---------------------------------------------

installed=$T/installed
mkdir "$installed" "$T/hooks" "$T/hooks/netns" "$T/hooks/sysfs"
# The server's run directory has vrdmad's directories of vdevices.
for part in netns sysfs; do mount --bind "$R/$part" "$T/hooks/$part"; done
cp -rL "$hook_program" "$LIBRARIES"/lib*.so* "$BUILD/lib/vrdma/stubs" "$installed"
ln -s vrdma-oci-hook "$installed/vrdma-runtime"
answer() { printf '%s' "$1" >"$T/answer.json"; }
# answer_for NAMESPACE VDEVICE: as vrdmad answers for that vdevice.
answer_for() { # NAMESPACE VDEVICE [FIELD]
  ctl exec "$2" -- true  # makes its sysfs tree
  local cookie
  cookie=$(cookie_of "$1")
  answer "{\"sockets\": \"$R/netns/$cookie\", \"vdevices\": [[\"$2\", \"$R/sysfs/$cookie/$2\"]]${3:+, $3}}"
}
requests() { cat "$T/requests.log" 2>/dev/null || true; }
: >"$T/requests.log"
"$here/oci_server.py" "$T/hooks/hook.sock" "$T/answer.json" "$T/requests.log" >"$T/server.log" 2>&1 &
PID[server]=$!
wait_until 5 test -S "$T/hooks/hook.sock" || fail "the server does not start"
hook=("$installed/vrdma-oci-hook" --run-dir "$T/hooks")

# ---- images -------------------------------------------------------------------------------------

# image NAME: a root file system with the programs of this host, at $T/NAME, in $IMAGE.
image() {
  IMAGE=$T/image-$1
  mkdir -p "$IMAGE"/{etc,opt,run,tmp,usr,var}
  mount --bind -o ro /usr "$IMAGE/usr"
  IMAGES+=("$IMAGE")
  local name
  for name in bin sbin lib lib64; do ln -s "usr/$name" "$IMAGE/$name"; done
  cp /etc/ld.so.cache /etc/passwd "$IMAGE/etc/"
}
IMAGES=()
remove_images() {
  local i
  for i in "${IMAGES[@]}"; do umount -R "$i/usr" || true; done
  umount "$T"/hooks/{netns,sysfs} 2>/dev/null || true
  umount "$T/volume" 2>/dev/null || true
  for i in "$T"/silent-*; do umount -l "$i" 2>/dev/null || true; done
}
trap 'status=$? command=$BASH_COMMAND; remove_images; finish $status "$command"' EXIT

# run_in NAMESPACE [OPTION]... -- COMMAND...: in a container of $IMAGE, with a vdevice as "${WISH[@]}" says.
WISH=(small)
run_in() {
  local space=$1 options=()
  shift
  while [[ $1 != -- ]]; do options+=("$1"); shift; done
  $(enter "$space") timeout -k 5 60 "$here/oci_container.py" "${options[@]}" "$IMAGE" "${hook[@]}" createRuntime "${WISH[@]}" "$@"
}
# refused SENTENCE [OPTION]...: the container is not started, and the hook says that.
refused() {
  local sentence=$1
  shift
  if run_in a "$@" -- true >"$T/refused.log" 2>"$T/refused.err"; then fail "a container starts: $sentence"; fi
  grep -q "^vrdma: .*$sentence" "$T/refused.log" || fail "stdout does not say '$sentence'"
  grep -q "^vrdma: .*$sentence" "$T/refused.err" || fail "stderr does not say '$sentence'"
  [[ $(wc -l <"$T/refused.log") -eq 1 ]] || fail "not one line: $sentence"
}
# own_library PATH [LIBRARY]: words for a shell in a container, which complain unless PATH is that drop-in library.
own_library() {
  echo "[ \$(stat -L -c %d:%i $1) = \$(stat -L -c %d:%i /run/vrdma/lib/${2:-libibverbs.so.1}) ] || echo 'not replaced: $1'"
}
nothing() { [[ -z $2 ]] || fail "$1: $2"; }  # WHAT OUTPUT

# What a hook that left a container's root would change.
host_state() {
  md5sum /etc/ld.so.cache
  ls -d /tmp/vrdma-evil* /run/vrdma-evil* 2>/dev/null || true
  cut -d ' ' -f 4-5 /proc/self/mountinfo | grep -E " (/etc|/opt|/usr|/run/vrdma|/dev/infiniband|/sys/class|$T/volume|$T/installed)" | sort || true
}
before=$(host_state)

# ---- what a container sees ----------------------------------------------------------------------

say "a container sees its vdevice: verbs, sysfs, /dev, without a change of its environment"
image plain
answer_for a va
run_in a -- env >"$T/env.log"
grep -q LD_LIBRARY_PATH "$T/env.log" && fail "LD_LIBRARY_PATH is set"
[[ $(run_in a -- ibv_devices | sed 1,2d | awk '{ print $1 }' | xargs) == va ]] || fail "ibv_devices does not list va alone"
run_in a -- ibv_devinfo -v >"$T/devinfo.log" || fail "ibv_devinfo"
grep -q '::ffff:10.0.0.1' "$T/devinfo.log" || fail "ibv_devinfo has no GID of 10.0.0.1"
run_in a -- sh -c 'cat /sys/class/infiniband/va/ports/1/state && ls /sys/class/net && : <>/dev/infiniband/va' >"$T/sysfs.log" ||
  fail "sysfs or /dev"
[[ $(xargs <"$T/sysfs.log") == "4: ACTIVE eth0 lo" ]] || fail "sysfs: $(xargs <"$T/sysfs.log")"
classes=$(run_in a -- ls /sys/class | wc -l)
[[ $classes -eq $(($(ls /sys/class | grep -vc infiniband) + 2)) ]] || fail "/sys/class has $classes entries"
nothing "notes" "$(run_in a -- sh -c 'cat /run/vrdma/notes 2>&1 | grep -v "No such file"')"
grep -q '^set up c1 pod= class=small wishes=,,: same netns$' "$T/requests.log" || fail "the request is $(head -1 "$T/requests.log")"
grep -q '^undone' "$T/requests.log" && fail "a successful set-up is undone"

say "vrdmad learns whether programs may exchange netdevs"
may_exchange() { # OPTION...
  : >"$T/requests.log"
  run_in a "$@" -- true || fail "a container with $*"
  grep -q '^set up c1' "$T/requests.log" || fail "no request of a container with $*"
  grep -q '^  network_admin$' "$T/requests.log"
}
may_exchange --capability CAP_CHOWN --capability CAP_NET_ADMIN || fail "CAP_NET_ADMIN is not told"
may_exchange --capability CAP_CHOWN --capability CAP_NET_RAW && fail "CAP_NET_ADMIN is told of other capabilities"
may_exchange || fail "a container of which config.json names no capabilities is bounded"

say "all of it is read-only"
for path in /run/vrdma /run/vrdma/lib /run/vrdma/netns/* /sys/class /sys/class/infiniband/va /sys/devices/virtual /dev/infiniband \
  /run/vrdma/lib/libibverbs.so.1 /etc/ld.so.cache; do
  # shellcheck disable=SC2016
  run_in a -- sh -c 'for p in $0; do if [ -d $p ]; then p=$p/new; fi; if (: >>$p) 2>/dev/null; then exit 1; fi; done' "$path" ||
    fail "$path can be written"
done

say "the loader's cache names the drop-in libraries, and all else that the image's names"
run_in a -- cat /etc/ld.so.cache >"$T/cache"
listed() { ldconfig -p -C "$1" | grep '=>' | grep -vE 'lib(ibverbs|rdmacm)\.so' | sort; }
cmp <(listed "$T/cache") <(listed /etc/ld.so.cache) || fail "the cache is changed"
ldconfig -p -C "$T/cache" >"$T/listed.log"
for name in libibverbs.so.1 libibverbs.so librdmacm.so.1 librdmacm.so; do
  grep -q "[[:space:]]$name .*=> /run/vrdma/lib/$name$" "$T/listed.log" || fail "the cache does not name $name"
done

say "private and renamed copies are replaced, and what is not for this processor is not"
image copies
original=/usr/lib/$multiarch/libibverbs.so.1
libs=$IMAGE/opt/venv/lib/python3.11/site-packages/x.libs
mkdir -p "$libs" "$IMAGE"/opt/{conda/lib,conda/pkgs/rdma-core/lib,own,foreign/lib}
cp -L "$original" "$libs/libibverbs-1de1263b.so.1.14.48.0"
cp -L "$original" "$IMAGE/opt/conda/lib/libibverbs.so.1"
cp -L "$original" "$IMAGE/opt/conda/pkgs/rdma-core/lib/libibverbs.so.1"
cp -L "$original" "$IMAGE/opt/own/libibverbs.so.1"
echo text >"$IMAGE/opt/foreign/lib/libibverbs.so.1"
nothing "copies" "$(run_in a --env LD_LIBRARY_PATH=/x:/opt/own -- sh -c "
  $(own_library /opt/venv/lib/python3.11/site-packages/x.libs/libibverbs-1de1263b.so.1.14.48.0)
  $(own_library /opt/conda/lib/libibverbs.so.1)
  $(own_library /opt/conda/pkgs/rdma-core/lib/libibverbs.so.1)
  $(own_library /opt/own/libibverbs.so.1)
  $(own_library "$original")
  $(own_library "/usr/lib/$multiarch/librdmacm.so.1" librdmacm.so.1)
  [ \"\$LD_LIBRARY_PATH\" = /x:/opt/own ] || echo LD_LIBRARY_PATH is changed
  grep -qx text /opt/foreign/lib/libibverbs.so.1 || echo a text is replaced")"
nothing "a copy with its own name" "$(run_in a -- /usr/bin/python3 -c '
import ctypes
verbs = ctypes.CDLL("/opt/venv/lib/python3.11/site-packages/x.libs/libibverbs-1de1263b.so.1.14.48.0")
count = ctypes.c_int()
verbs.ibv_get_device_list(ctypes.byref(count))
if count.value != 1: print(count.value, "devices")')"

say "an image without a loader's cache gets one"
image bare
rm "$IMAGE/etc/ld.so.cache"
run_in a -- ldconfig -p | grep 'libibverbs.so.1 .*=> /run/vrdma/lib' >/dev/null || fail "no cache"

say "an image of the files that ldd names, without libdl.so.2 and libpthread.so.0"
IMAGE=$T/image-copied
mkdir -p "$IMAGE"/{etc,run}
devinfo=$(command -v ibv_devinfo)
# shellcheck disable=SC2046  # a word is a path
cp -L --parents "$devinfo" $(ldd "$devinfo" | grep -o '/[^ ]*') "$IMAGE"
[[ -z $(find "$IMAGE" -name 'libdl.*' -o -name 'libpthread.*') ]] || fail "the image has them"
run_in a -- ibv_devinfo -d va >"$T/devinfo.log" || fail "ibv_devinfo in an image of copied files"

say "the programs of two containers reach each other; the memory of one is reached, as its class says"
image plain2
answer_for a va '"memory_reached": 1'
run_in a -- ibv_rc_pingpong -d va -g "$INDEX_A" -n 100 >"$T/pingpong.log" 2>&1 &
PID[pingpong]=$!
listens_in_a() { $(enter a) cat /proc/net/tcp /proc/net/tcp6 | grep -E ':4853 [0-9A-F]+:0000 0A ' >/dev/null; }
wait_until 20 listens_in_a || fail "the server in a does not listen"
answer_for b vb
IMAGE=$T/image-plain
run_in b --id c2 -- ibv_rc_pingpong -d vb -g "$INDEX_B" -n 100 10.0.0.1 >"$T/client.log" || fail "ibv_rc_pingpong"
reap pingpong 10
[[ $REAPED -eq 0 ]] || fail "the server of ibv_rc_pingpong ends with $REAPED"
[[ $(stat_of va mr_reached_asked) -gt 0 && $(stat_of vb mr_reached_asked) -eq 0 ]] ||
  fail "of va are reached $(stat_of va mr_reached_asked) regions, of vb $(stat_of vb mr_reached_asked)"
answer_for a va

say "a container with a user namespace"
image user
chown -R 100000:100000 "$IMAGE"/{etc,opt,run,tmp,var} && chown 100000:100000 "$IMAGE"
run_in a --user -- sh -c 'ibv_devinfo -d va >/dev/null && test -d /sys/class/infiniband/va/ports/1 && : <>/dev/infiniband/va' ||
  fail "with a user namespace"

say "a second run finds all there"
IMAGE=$T/image-plain
count='wc -l </proc/self/mountinfo'
[[ $(run_in a --twice -- sh -c "$count") -eq $(run_in a -- sh -c "$count") ]] || fail "a second run mounts again"

say "a second run adds a vdevice of another class"
tree=$T/hooks/sysfs/$(cookie_of a)
mkdir "$tree/vz"
mount --bind "$tree/va" "$tree/vz"
others=$T/others.sh
cat >"$others" <<END
#!/bin/bash
"\$@" && sed -i 's/va"/vz"/g' "$T/answer.json"
END
chmod 755 "$others"
plain_hook=("${hook[@]}")
hook=("$others" "${plain_hook[@]}")
run_in a --twice -- sh -c 'ibv_devinfo -d va >/dev/null && cd /sys/devices/virtual/vrdma && test -d va/infiniband && test -d vz/infiniband &&
  test -L /sys/class/infiniband/vz && test -e /dev/infiniband/vz && ! mkdir new 2>/dev/null' || fail "the second class"
hook=("${plain_hook[@]}")
umount "$tree/vz"
rmdir "$tree/vz"
answer_for a va

if [[ $DAEMON_USER != root ]]; then
  say "a hook that may not read vrdmad's files shows the vdevice to verbs alone"
  plain_hook=("${hook[@]}")
  hook=(setpriv --bounding-set=-dac_override,-dac_read_search "${plain_hook[@]}")
  run_in a -- sh -c 'ibv_devinfo -d va >/dev/null && grep -q "^no vdevice is in sysfs: " /run/vrdma/notes && ! test -e /sys/class/infiniband/va' ||
    fail "without the right to read"
  hook=("${plain_hook[@]}")
fi

say "a container with adapters of the host keeps the image's libraries for them"
adapters=$T/adapters.sh
cat >"$adapters" <<END
#!/bin/bash
pid=\$(python3 -c 'import json, sys; state = sys.stdin.read(); open("$T/state.json", "w").write(state); print(json.loads(state)["pid"])')
nsenter -t "\$pid" -m sh -c 'mkdir -p $IMAGE/dev/infiniband && : >$IMAGE/dev/infiniband/uverbs0'
exec "\$@" <"$T/state.json"
END
chmod 755 "$adapters"
plain_hook=("${hook[@]}")
hook=("$adapters" "${plain_hook[@]}")
run_in a -- sh -c "cmp /run/vrdma/real/libibverbs.so.1 - && test -e /dev/infiniband/uverbs0" <"$original" || fail "no original"
nothing "beside an adapter" "$(run_in a -- sh -c "$(own_library "$original")")"
run_in a --env LD_DEBUG=files -- ibv_devices >"$T/adapters.log" 2>&1 || fail "ibv_devices beside an adapter"
grep -q 'calling init: /run/vrdma/real/libibverbs.so.1' "$T/adapters.log" || fail "the image's library does not serve the adapters"
hook=("${plain_hook[@]}")
# A host's /run/vrdma belongs to the daemon's user, which must not choose what programs of root load.
real_is_loaded() { # OWNER of /run/vrdma
  unshare --mount --propagation private sh -c "mount -t tmpfs tmpfs /run && mkdir -p /run/vrdma/real && cp -L $original /run/vrdma/real &&
    chown $1 /run/vrdma && LD_DEBUG=files LD_LIBRARY_PATH=$T/lib ibv_devices; true" 2>&1 | grep 'calling init: /run/vrdma/real/' >/dev/null
}
real_is_loaded 0 || fail "root's /run/vrdma/real is not used"
if real_is_loaded 64789; then fail "/run/vrdma/real of another user is used"; fi
[[ $(run_in a -- ls /run/vrdma | xargs) == "ld.so.cache lib netns" ]] || fail "originals without an adapter"

for _ in {1..20}; do run_in a --times "$T/times" -- true; done
say "createRuntime, vrdmad's work not included: $(sort -n "$T/times" | awk '{ t[NR] = $1 } END { print "p50 " t[int((NR + 1) / 2)] " ms, max " t[NR] " ms" }')"

# ---- hostile images -----------------------------------------------------------------------------

say "links of an image do not lead the hook out of it"
image links
rm "$IMAGE/etc/ld.so.cache"
ln -s /proc/1/root/tmp/vrdma-evil1 "$IMAGE/etc/ld.so.cache"
mkdir -p "$IMAGE/opt/a/lib" "$IMAGE/opt/b"
ln -s /proc/1/root/usr/lib "$IMAGE/opt/b/lib"
ln -s "/proc/1/root$original" "$IMAGE/opt/a/lib/libibverbs.so.1"
ln -s . "$IMAGE/opt/loop"
run_in a -- cat /run/vrdma/notes >"$T/notes.log" || fail "the container does not start"
grep -q '^/etc/ld.so.cache stays as it is: ' "$T/notes.log" || fail "no note about the cache"
image linked_run
rmdir "$IMAGE/run"
ln -s /proc/1/root/run "$IMAGE/run"
refused "open /run/vrdma of the container"
image dots
ln -s ../../../../../../tmp/vrdma-evil2 "$IMAGE/run/vrdma"
refused "open /run/vrdma of the container"
mkdir "$IMAGE/tmp/vrdma-evil2"
run_in a -- test -d /tmp/vrdma-evil2/lib || fail "a link with .. is not taken as inside of the root"

say "FIFOs, devices and long files of an image neither block the hook nor fill its memory"
image fifos
rm "$IMAGE/etc/ld.so.cache"
mkfifo "$IMAGE/etc/ld.so.cache"
mkdir -p "$IMAGE"/opt/{a,b,c}/lib
mkfifo "$IMAGE/opt/a/lib/libibverbs.so.1"
mknod "$IMAGE/opt/b/lib/libibverbs.so.1" c 1 5
truncate -s 1T "$IMAGE/opt/c/lib/libibverbs.so.1"
run_in a -- busybox grep -q 'no regular file' /run/vrdma/notes || fail "a FIFO"  # busybox: no loader, which would wait
rm "$IMAGE/etc/ld.so.cache"
truncate -s 1T "$IMAGE/etc/ld.so.cache"
run_in a -- grep -q 'longer than' /run/vrdma/notes || fail "a long cache"
rm "$IMAGE/etc/ld.so.cache"
echo nonsense >"$IMAGE/etc/ld.so.cache"
run_in a -- grep -q 'its format is unknown' /run/vrdma/notes || fail "a damaged cache"

say "the search in an image has a limit"
image many
mkdir -p "$IMAGE/opt/venv/lib/python3.11/site-packages"
(cd "$IMAGE/opt/venv/lib/python3.11/site-packages" && seq 20000 | xargs touch)
run_in a -- grep -q 'stopped after 5000 names' /run/vrdma/notes || fail "the search has no limit"

say "nothing is mounted in volumes that would carry it to the host"
mkdir -p "$T/volume"/{lib,vrdma/va,class/a,infiniband,dev/infiniband/va,run/vrdma,etc}
cp -L "$original" "$T/volume/lib/libibverbs.so.1"
cp /etc/ld.so.cache "$T/volume/etc"
mount --bind "$T/volume" "$T/volume"
mount --make-shared "$T/volume"
# The host's mounts below this test's folder: others come and go with the tests beside this one.
below_test() { grep -F " $T/" /proc/self/mountinfo; }
# of_volume PLACE [WORDS] [DIR]: with DIR of the volume at PLACE; a hook that is refused says WORDS.
of_volume() {
  local mounts
  mounts=$(below_test)
  run_in a --shared "$T/volume${3:-}:$1" "${sysfs[@]}" --env LD_LIBRARY_PATH=/opt/volume/lib -- \
    busybox sh -c 'cat /run/vrdma/notes; ls /sys/class/infiniband' >"$T/shared.log" 2>&1 || true
  [[ $(below_test) == "$mounts" ]] ||
    fail "a volume at $1 carries to the host: $(diff <(echo "$mounts") <(below_test))"
  grep -q "${2:-^va$}" "$T/shared.log" || fail "a volume at $1: $(<"$T/shared.log")"
}
image shared
mkdir -p "$IMAGE"/sys/{class,devices/virtual}
refuses='is in a volume with shared propagation'
sysfs=()
of_volume /opt/volume "^/opt/volume/lib/libibverbs.so.1 of the container $refuses"
of_volume /usr/local/lib "^/usr/local/lib/libibverbs.so.1 of the container $refuses" /lib
of_volume /run "^vrdma: /run/vrdma of the container $refuses" /run
of_volume /dev "^vrdma: /dev/infiniband of the container $refuses" /dev
of_volume /dev/infiniband "^vrdma: /dev/infiniband of the container $refuses"
of_volume /dev/infiniband/other
of_volume /etc "^/etc/ld.so.cache stays as it is: /etc/ld.so.cache of the container $refuses" /etc
# What is below /sys is kept: as a clone, in which the hook mounts the vdevices.
sysfs=(--no-sysfs)
of_volume /sys/devices/virtual/vrdma "" /vrdma
of_volume /sys/devices/virtual "^vrdma: /sys/devices/virtual of the container $refuses"
of_volume /sys/class "^vrdma: /sys/class of the container $refuses"
of_volume /sys/class/other
of_volume /sys/class/infiniband_verbs
of_volume /sys/class/infiniband "^vrdma: /sys/class/infiniband of the container $refuses" /class
of_volume /sys "^vrdma: /sys/class of the container $refuses"
umount "$T/volume"

say "the program loads nothing and ignores its environment"
if readelf -l "$hook_program" | grep INTERP >/dev/null; then fail "the hook needs a loader"; fi
nothing "LD_DEBUG" "$(LD_PRELOAD=/nonexistent LD_DEBUG=all "${hook[@]}" poststop </dev/null 2>&1)"

say "annotations are wishes; none names a tenant, a fabric or permissions"
IMAGE=$T/image-plain
: >"$T/requests.log"
run_in a --annotation vrdma.io/quota=qp=8 --annotation vrdma.io/netdev=eth7 --annotation vrdma.io/name=mlx5_0 \
  --annotation vrdma.io/tenant=evil --annotation vrdma.io/fabric=evil --annotation vrdma.io/allow=evil --annotation vrdma.io/device=evil \
  --annotation io.kubernetes.cri.sandbox-id=pod7 -- true
grep -q '^set up c1 pod=pod7 class=small wishes=eth7,mlx5_0,qp=8: same netns$' "$T/requests.log" || fail "annotations: $(requests)"
grep -q evil "$T/requests.log" && fail "an annotation that is no wish is sent"
: >"$T/requests.log"
of_pod=(--annotation io.kubernetes.cri.sandbox-namespace=shop --annotation io.kubernetes.cri.sandbox-name=web-0
  --annotation io.kubernetes.cri.sandbox-uid=1-2 --annotation io.kubernetes.cri.container-name=app)
run_in a "${of_pod[@]}" -- true
grep -q 'of pod' "$T/requests.log" && fail "podman passes on the annotations of an image, and they are believed"
: >"$T/requests.log"
WISH=(--claim u-1 --share data)
run_in a -- true
WISH=(small)
grep -q '^set up c1 pod= class= wishes=,,: same netns$' "$T/requests.log" && grep -q '^  by claim u-1 share data$' "$T/requests.log" ||
  fail "a claim is not named: $(requests)"
refused "annotation vrdma.io/netdev is longer than 15 characters" --annotation vrdma.io/netdev=0123456789abcdef
refused "not printable" --annotation vrdma.io/name=$'a\nb'

say "the sandbox of a pod gets nothing"
for annotation in io.kubernetes.cri-o.ContainerType=sandbox io.kubernetes.cri.container-type=sandbox; do
  : >"$T/requests.log"
  run_in a --annotation $annotation -- test ! -e /run/vrdma/lib || fail "a sandbox has /run/vrdma"
  nothing "a sandbox" "$(requests)"
done

say "a volume under /run whose other writers change it meanwhile"
image volume
mkdir "$IMAGE/config"
mkdir -m 777 "$T/run-volume"
mkdir -m 700 "$T/secrets"
for try in {1..10}; do
  rm -rf "$T/run-volume"/*
  echo secret >"$T/secrets/secret"
  "$here/hook_racer.py" "$T/run-volume" $((400 + try * 200)) &
  PID[racer]=$!
  wait_until 5 test -e "$T/run-volume/fake/lib" || fail "the racer does not start"
  run_in a --volume "$T/run-volume:/run" --volume "$T/secrets:/config" -- true >"$T/raced.log" 2>&1 || true
  reap racer 15
  [[ $REAPED -eq 0 ]] || fail "nothing was raced for: $(<"$T/raced.log")"
  [[ $(<"$T/secrets/secret") == secret ]] || fail "the hook writes where a link of another volume leads"
done

say "file systems that never answer hold up neither vrdmad nor a neighbour, and their containers' vdevices end"
image silent
mkdir -p "$IMAGE"/opt/{lookup,getattr/lib,read/lib}
: >"$IMAGE/opt/getattr/lib/libibverbs.so.1"
: >"$IMAGE/opt/read/lib/librdmacm.so.1"
declare -A PLACE=([lookup]=/opt/lookup [getattr]=/opt/getattr/lib/libibverbs.so.1 [open]=/etc/ld.so.cache [read]=/opt/read/lib/librdmacm.so.1)
is_mounted() { grep -q " $1 " /proc/self/mountinfo; }
plain_hook=("${hook[@]}")
hook=("$installed/vrdma-oci-hook" --run-dir "$R")
WISH=(default)
mkdir "$T/silent-lookup"
for kind in "${!PLACE[@]}"; do
  [[ -d $T/silent-$kind ]] || : >"$T/silent-$kind"
  "$here/fuse_silent.py" "$T/silent-$kind" "$kind" >"$T/fuse-$kind.log" 2>&1 &
  PID[fuse-$kind]=$!
done
for kind in "${!PLACE[@]}"; do
  wait_until 5 is_mounted "$T/silent-$kind" || skip "there is no FUSE here: $(<"$T/fuse-$kind.log")"
done
for kind in "${!PLACE[@]}"; do
  run_in a --id "$kind" --volume "$T/silent-$kind:${PLACE[$kind]}" -- true >"$T/silent-$kind.log" 2>&1 &
  PID[silent-$kind]=$!
done
count_hooks() { pgrep -fc "^$installed/vrdma-oci-hook --run-dir $R createRuntime" || true; }
no_hooks() { [[ $(count_hooks) -eq 0 ]]; }
all_begin() { [[ $(count_hooks) -ge ${#PLACE[@]} ]]; }
wait_until 5 all_begin || fail "the hooks do not start"
IMAGE=$T/image-plain
neighbour() { run_in b --id neighbour -- ibv_devinfo -d vrdma0 >"$T/neighbour.log" 2>&1 || fail "the neighbour: $(<"$T/neighbour.log")"; }
neighbour
for kind in "${!PLACE[@]}"; do  # they give up after 10 s
  ! ended "${PID[silent-$kind]}" || fail "the hook of $kind ended before the neighbour was served"
done
neighbour
neighbour
for kind in "${!PLACE[@]}"; do
  reap "silent-$kind" 15
  [[ $REAPED -eq 1 ]] || fail "a container whose file system is silent at $kind ends with $REAPED"
  grep -q '^vrdma: a file system of the container does not answer' "$T/silent-$kind.log" || fail "$kind: $(<"$T/silent-$kind.log")"
  grep -q "container $kind of user 0 gets no vdevice: its hook failed: a file system" "$T/vrdmad.log" || fail "vrdmad does not log what failed at $kind"
done
only_own() { [[ $(ctl vdev list | tail -n +2 | awk '{ print $1 }' | xargs) == "va vb" ]]; }
wait_until 5 only_own || fail "a vdevice is left: $(ctl vdev list)"
[[ $(count_hooks) -eq ${#PLACE[@]} ]] || fail "$(count_hooks) processes wait: file systems that let them be killed test nothing"
for kind in "${!PLACE[@]}"; do
  kill -9 "${PID[fuse-$kind]}"
  reap "fuse-$kind" 5
  umount "$T/silent-$kind"
done
wait_until 5 no_hooks || fail "$(count_hooks) processes outlive the file system"
hook=("${plain_hook[@]}")
WISH=(small)

# ---- failures -----------------------------------------------------------------------------------

say "a refusal of vrdmad is what the user sees"
answer '{"error": 1, "reason": "class small is not for user 1001"}'
refused "class small is not for user 1001"
answer '{"sockets": "/nonexistent/netns/7", "vdevices": [["va", "/nonexistent/sysfs/7/va"]]}'
: >"$T/requests.log"
refused "open $T/hooks/netns/7"
is_undone() { grep -q '^undone c1$' "$T/requests.log"; }
wait_until 5 is_undone || fail "a failed set-up is not undone"
wait_until 5 grep -q "^failed c1: open $T/hooks/netns/7" "$T/requests.log" ||
  fail "vrdmad does not learn why: $(requests)"
answer '{"sockets": "/tmp", "vdevices": [["../evil", "/tmp"]]}'
refused "does not understand"
answer '{"sockets": "tmp"}'
refused "does not understand"
answer '{}'
refused "vrdmad names , which is none of its directories"
answer '{"end": true}'
refused "vrdmad ended before it answered"
answer '{"silent": true}'
refused "vrdmad does not answer"

say "whatever vrdmad says, nothing but directories of vdevices is shown"
cookie=$(cookie_of a)
for path in /etc /etc/netns "$R" "$R/netns/" "$R/netns/../netns" "$R/state/$cookie" "$R/netns/$cookie/va"; do
  answer "{\"sockets\": \"$path\", \"vdevices\": []}"
  refused "vrdmad names $path, which is none of its directories"
done
for path in /etc "$R/sysfs/$cookie" "$R/sysfs/$cookie/vb" "$R/sysfs/$cookie/../$cookie/va"; do
  answer "{\"sockets\": \"$R/netns/$cookie\", \"vdevices\": [[\"va\", \"$path\"]]}"
  refused "vrdmad names $path, which is none of its directories"
done
ln -s /etc "$R/netns/99"
answer '{"sockets": "/x/netns/99", "vdevices": []}'
refused "open $T/hooks/netns/99: Too many levels of symbolic links"
rm "$R/netns/99"

say "a hook that is killed at any moment leaves nothing"
answer_for a va
: >"$T/requests.log"
plain_hook=("${hook[@]}")
killed=0
for delay in {1..20}; do
  hook=(timeout --signal=KILL "$(printf '0.%04d' $((delay * 5)))" "${plain_hook[@]}")
  run_in a -- true >"$T/killed.log" 2>&1 || killed=$((killed + 1))
done
hook=("${plain_hook[@]}")
[[ $killed -gt 0 ]] || fail "no hook was killed: nothing is tested"
# vrdmad learns the end of each set-up: done or undone.
all_ended() { [[ $(grep -c '^set up' "$T/requests.log") -eq $(grep -cE '^(done|undone)' "$T/requests.log") ]]; }
wait_until 5 all_ended || fail "a set-up has no end: $(requests)"
run_in a -- ibv_devinfo -d va >"$T/devinfo.log" || fail "after the killed ones"

say "a container that has ended tells vrdmad"
answer '{}'
: >"$T/requests.log"
state='{"id": "c1", "bundle": "/nonexistent", "status": "stopped"}'
"${hook[@]}" poststop <<<"$state" || fail "poststop"
says_ended() { [[ $(requests) == "ended c1" ]]; }
wait_until 5 says_ended || fail "poststop says '$(requests)'"
says() { # SENTENCE STATUS INPUT ARGUMENTS...
  local status=0
  "${hook[@]}" "${@:4}" <<<"$3" >"$T/says.log" 2>/dev/null || status=$?
  [[ $status -eq $2 ]] && grep -q "$1" "$T/says.log" || fail "$1: status $status, $(<"$T/says.log")"
}
says "open /nonexistent/config.json" 1 "$state" createRuntime small
wait_until 5 grep -q "^failed c1: open /nonexistent/config.json" "$T/requests.log" ||
  fail "vrdmad does not learn why: $(requests)"

say "without vrdmad, createRuntime says so and poststop succeeds"
kill "${PID[server]}"
wait "${PID[server]}" 2>/dev/null || true
unset 'PID[server]'
refused "vrdmad does not run: nothing listens on $T/hooks/hook.sock"
"${hook[@]}" poststop <<<"$state" || fail "poststop without vrdmad"
"${hook[@]}" poststop <<<"nonsense" || fail "poststop with nonsense"

say "wrong states and command lines"
says "is no JSON object" 1 "[]" createRuntime small
says "has no valid id" 1 "{}" createRuntime small
says "has no bundle" 1 '{"id": "x", "bundle": "b"}' createRuntime small
says "longer than" 1 "$(head -c 1100000 /dev/zero | tr '\0' ' ')" createRuntime small
for words in "" "createRuntime" "createContainer small" "createRuntime small more" "createRuntime --claim" "createRuntime --claim u" \
  "createRuntime --claim u --share" "createRuntime --share s --claim u" "createRuntime --claim u --share s small"; do
  # shellcheck disable=SC2086
  says "usage: vrdma-oci-hook" 2 "$state" $words
done

# ---- the runtime --------------------------------------------------------------------------------

say "vrdma-runtime adds the hooks once, and becomes the runtime"
cat >"$T/runc" <<END
#!/bin/sh
printf '%s\n' "\$*" >$T/runc.log
END
chmod 755 "$T/runc"
printf '# of a test\nclass = "small"\nruntime = "%s"\nrun-dir = "%s"\n' "$T/runc" "$T/hooks" >"$T/runtime.conf"
bundle=$T/bundle
mkdir "$bundle"
config='{"ociVersion":"1.0.2","process":{"env":["VRDMA_DEVICE=evil"]},"hooks":{"createRuntime":[{"path":"/other"}]},"annotations":{"vrdma.io/class":"evil"}}'
runtime=("$installed/vrdma-runtime" --vrdma-config "$T/runtime.conf")
entry() { python3 -c 'import json, sys; print(json.dumps(json.load(open(sys.argv[1]))["hooks"][sys.argv[2]]))' "$bundle/config.json" "$1"; }
echo "$config" >"$bundle/config.json"
chmod 640 "$bundle/config.json"
for _ in 1 2; do "${runtime[@]}" --root run --log x create --bundle "$bundle" c1 || fail "vrdma-runtime"; done
[[ $(<"$T/runc.log") == "--root run --log x create --bundle $bundle c1" ]] || fail "the runtime gets '$(<"$T/runc.log")'"
[[ $(entry createRuntime) == "[{\"path\": \"/other\"}, {\"path\": \"$installed/vrdma-oci-hook\", \"args\": [\"vrdma-oci-hook\", \
\"--run-dir\", \"$T/hooks\", \"createRuntime\", \"small\"], \"env\": [\"PATH=/usr/bin\"], \"timeout\": 30}]" ]] || fail "$(entry createRuntime)"
[[ $(entry poststop) == *'"poststop"]'* ]] || fail "$(entry poststop)"
[[ $(stat -c %a "$bundle/config.json") == 640 ]] || fail "config.json has another mode"
echo "$config" >"$bundle/config.json"
(cd "$bundle" && "${runtime[@]}" --vrdma-class=large run c1) || fail "vrdma-runtime run"
[[ $(entry createRuntime) == *'"createRuntime", "large"]'* ]] || fail "$(entry createRuntime)"
[[ $(<"$T/runc.log") == "run c1" ]] || fail "the runtime gets '$(<"$T/runc.log")'"
"${runtime[@]}" exec c1 program --vrdma-class=evil --vrdma-config evil || fail "vrdma-runtime exec"
[[ $(<"$T/runc.log") == "exec c1 program --vrdma-class=evil --vrdma-config evil" ]] || fail "the runtime gets '$(<"$T/runc.log")'"
for other in '{"annotations":{"io.kubernetes.cri.container-type":"sandbox"}}' '{}'; do
  echo "$other" >"$bundle/config.json"
  word=create
  [[ $other != '{}' ]] || word=delete
  "${runtime[@]}" $word --bundle "$bundle" c1
  [[ $(<"$bundle/config.json") == "$other" ]] || fail "vrdma-runtime $word changes $other"
done
echo 'kind = "x"' >"$T/runtime.conf"
if "${runtime[@]}" create --bundle "$bundle" c1 >"$T/says.log" 2>&1; then fail "a wrong configuration"; fi
grep -q "runtime.conf, line 1: 'kind' is none of" "$T/says.log" || fail "$(<"$T/says.log")"

say "the host is as before"
[[ $(host_state) == "$before" ]] || { diff <(echo "$before") <(host_state); fail "the host is changed"; }
