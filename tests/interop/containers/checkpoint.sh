#!/bin/bash
# checkpoint.sh FLOW default|other CM_FLOW: containers of podman with vdevices are written to disk by CRIU, and made again. All programs check
# each message, WRITE, READ and atomic that they exchange.
#
#     container NAME-a         podman's bridge              container NAME-b
#   +---------------------+                              +---------------------+
#   | vrdma0 ---- eth0 ===|=============================|== eth0 ---- vrdma0  |
#   | flow                |  pipes in a shared directory | flow                |
#   +---------------------+                              +---------------------+
#
# CRIU is of Debian 13, as in integration/checkpoint.sh; a script of that name in PATH runs it. The run directory of vrdmad
# is the default one, which all find by themselves, or another one, which only that script tells to CRIU.
here=$(realpath "$(dirname "$0")")
. "$here/lib.sh"
need podman
need runc
[[ -x /usr/lib/podman/netavark ]] || skip "netavark is not installed"
apart "$@"
setup
[[ -x $BUILD/lib/vrdma/vrdma-oci-hook ]] || skip "the hook is not built with a sanitizer"
[[ -e $BUILD/lib/criu/vrdma_plugin.so ]] || skip "the plugin is not built: another processor"
trap 'status=$? command=$BASH_COMMAND; podman_stop; finish "$status" "$command"' EXIT
root_of trixie criu
mkdir "$T"/{path,meet}
if [[ $2 == default ]]; then
  mount -t tmpfs -o mode=755 tmpfs /run
  mkdir /run/netns
  R=/run/vrdma
fi
cat >"$T/path/criu" <<END
#!/bin/sh
[ $2 = default ] || export VRDMA_RUN_DIR="$R"  # podman does not hand it on
exec "$ROOT/usr/lib64/ld-linux-x86-64.so.2" --library-path "$ROOT/usr/lib/x86_64-linux-gnu" "$ROOT/usr/sbin/criu" "\$@"
END
chmod 755 "$T/path/criu"
PATH=$T/path:$PATH
own_etc
mkdir /etc/criu
echo "libdir $BUILD/lib/criu" >/etc/criu/runc.conf  # where runc looks
podman_start
criu check >"$T/check.log" 2>&1 || skip "CRIU does not run here: $(grep -m 1 Error "$T/check.log" || head -1 "$T/check.log")"
start_hooks_daemon
printf '[red]\ntenant = red\n[short]\n' >/etc/vrdma/classes.conf
ctl cdi generate
ctl seccomp >"$T/seccomp.json"
cp "$1" "$T/lib/flow"
cp "$3" "$T/lib/cm-flow"
# shellcheck disable=SC2016  # make_image's
make_image plain bookworm 'cp "$T/lib/flow" "$T/lib/cm-flow" usr/bin/ && ldd "$T/lib/flow" | sed -nE "s/.* => (.*(stdc|gcc|libm)[^ ]*) .*/\1/p" | xargs cp -L -t usr/lib/x86_64-linux-gnu && ldconfig -r .'
podman network create --disable-dns lab >"$T/network.log" 2>&1 || skip "podman cannot make a network here: $(tail -1 "$T/network.log")"
say "podman $(podman version -f '{{.Client.Version}}'), $(runc --version | head -1), CRIU $(criu --version | awk '{ print $2; exit }')"

DEVICE=default  # class of the next pair
# begin NAME HOW [OPTION]...: a pair of containers whose first process is a flow.
begin() {
  begin_end "$1-a" "$1" "$2" '' --network lab "${@:3}" --
  begin_end "$1-b" "$1" "$2" client --network lab "${@:3}" --
}
begin_end() { # NAME PIPES HOW ROLE OPTION... -- [COMMAND]...
  local name=$1 pipes=/meet/$2 how=$3 role=$4 options=()
  shift 4
  while [[ $1 != -- ]]; do options+=("$1"); shift; done
  [[ -e $T$pipes.a ]] || mkfifo "$T$pipes.a" "$T$pipes.b"
  head -c 24 /dev/zero >"$T/meet/$name.progress"
  # shellcheck disable=SC2086  # no word if it is empty
  podman run -d --name "$name" --device "vrdma.io/device=$DEVICE" -v "$T/meet:/meet" "${options[@]}" "$IMAGE" \
    "${@:2}" flow vrdma0 1 "$pipes" "/meet/$name.progress" "$how" $role >"$T/$name.log" 2>&1 || fail "$name is not started: $(<"$T/$name.log")"
}
# A shell as the first process, which has a flow as its child.
# shellcheck disable=SC2016  # the shell's
CHILD=(bash -c 'trap "kill \$!" TERM; "$@" & wait; wait' -)
counted() { od -An -v -t u8 -N 16 "$T/meet/$1.progress" | xargs; }
has_done() { # NAME SENT RECEIVED
  local now
  read -ra now <<<"$(counted "$1")"
  [[ ${now[0]} -ge $2 && ${now[1]} -ge $3 ]]
}
# goes_on NAME...: each of them sends and receives 300 more messages.
goes_on() {
  local name before
  for name in "$@"; do
    read -ra before <<<"$(counted "$name")"
    wait_until 20 has_done "$name" $((before[0] + 300)) $((before[1] + 300)) ||
      fail "$name does not go on: $(counted "$name") after ${before[*]}; $(podman logs "$name" 2>&1)"
  done
}
# over CONTAINER CONTAINER: both end, and each has received what the other one has sent.
over() {
  local name
  for name in "$@"; do podman kill -s TERM "$name" >/dev/null || fail "$name has ended: $(podman logs "$name" 2>&1)"; done
  for name in "$@"; do
    podman wait "$name" >"$T/wait.log" || fail "$name does not end"
    podman logs "$name" 2>&1 | grep -qE '^[0-9]+ sent, [0-9]+ received$' || fail "$name: $(podman logs "$name" 2>&1)"
    podman rm "$name" >/dev/null
  done
}
# log_of KIND: the log of CRIU that podman keeps, of a dump or restore that failed or was told to keep it.
log_of() { find "$T/storage" -name "$1.log" -exec grep -E 'Error|vrdma:' {} +; }
checkpoint() { # NAME [OPTION]...
  podman container checkpoint --keep "$@" >"$T/checkpoint.log" 2>&1 || fail "checkpoint $*: $(<"$T/checkpoint.log") $(log_of dump)"
}
restore() { # NAME|OPTION...
  podman container restore --keep "$@" >"$T/restore.log" 2>&1 || fail "restore $*: $(<"$T/restore.log") $(log_of restore)"
}
gids_of() { podman exec "$1" ibv_devinfo -v -d vrdma0 | grep 'GID\['; }
added() { podman diff "$1" | grep '^A ' | sort; } # files of its image's layer
vdevices() { ctl vdev list | tail -n +2 | wc -l; }
are() { [[ $(vdevices) -eq $1 ]]; }

say "a container is checkpointed and restored before its program opens the device: it has the same addresses"
begin later all --security-opt "seccomp=$T/seccomp.json" -e FLOW_AFTER=/meet/go
gids=$(gids_of later-a)
files=$(added later-a)
for _ in 1 2; do
  checkpoint later-a
  wait_until 10 are 1 || fail "a vdevice outlives its container: $(ctl vdev list)"
  restore later-a
  [[ $(gids_of later-a) == "$gids" ]] || fail "not $gids, but $(gids_of later-a)"
  [[ $(added later-a) == "$files" ]] || fail "files are in its layer besides: $(added later-a)"
done
podman exec later-a bash -c '[[ $(</sys/class/infiniband/vrdma0/ports/1/state) == *ACTIVE ]] && : <>/dev/infiniband/vrdma0 && ! : >/run/vrdma/x' 2>"$T/sysfs.log" ||
  fail "its files: $(<"$T/sysfs.log")"
touch "$T/meet/go"
goes_on later-a later-b

say "a container is checkpointed in traffic and goes on"
for end in a b; do
  checkpoint later-$end --leave-running
  goes_on later-a later-b
done
over later-a later-b
say "the same if the program is not the first process"
DEVICE=default begin_end child-a child shared '' --network lab -- "${CHILD[@]}"
begin_end child-b child shared client --network lab --security-opt "seccomp=$T/seccomp.json" -- "${CHILD[@]}"
for end in a b; do
  checkpoint child-$end --leave-running
  goes_on child-a child-b
done

say "a container that was exported is imported with its address, and a copy with another one; both use their vdevices"
rm "$T/meet/go"
begin away poll -e FLOW_AFTER=/meet/go
gids=$(gids_of away-a)
checkpoint away-a --export "$T/away.tar.gz"
podman rm away-a >/dev/null
restore --import "$T/away.tar.gz"
[[ $(gids_of away-a) == "$gids" ]] || fail "not $gids, but $(gids_of away-a)"
restore --import "$T/away.tar.gz" --name copy
[[ $(gids_of copy) != "$gids" ]] || fail "two containers have the same address: $gids"
podman exec -d copy ib_write_lat -F -x 1 >/dev/null
wait_until 20 listens_in copy || fail "ib_write_lat does not listen"
podman exec away-b ib_write_lat -F -x 1 "$(address copy)" >"$T/lat.log" 2>&1 || fail "ib_write_lat: $(<"$T/lat.log")"
podman rm -f -t 0 copy >/dev/null
touch "$T/meet/go"
goes_on away-a away-b
over away-a away-b

# refused KIND SENTENCE COMMAND...: podman fails, and names the log that tells why.
refused() {
  local log
  if podman container "${@:3}" >"$T/refused.log" 2>&1; then fail "podman container ${*:3} succeeds"; fi
  log=$(grep -oE "/[^ ]*/$1\.log" "$T/refused.log" | head -1)
  [[ -e $log ]] && grep -q "vrdma: .*$2" "$log" || fail "no '$2': $(<"$T/refused.log") $(log_of "$1")"
}

say "in a pod that goes on, a container comes back with the device open; its peer waits meanwhile"
pod=$(podman pod create --network lab 2>"$T/pod.log") || fail "podman pod: $(<"$T/pod.log")"
podman run -d --pod "$pod" --name stays --device vrdma.io/device=default "$IMAGE" >"$T/pod.log" 2>&1 || fail "a pod: $(<"$T/pod.log")"
for shape in first child; do
  words=()
  [[ $shape == first ]] || words=("${CHILD[@]}")
  begin_end open-a $shape all '' --pod "$pod" -- "${words[@]}"
  begin_end open-b $shape all client --network lab --
  goes_on open-a open-b
  checkpoint open-a --export "$T/open.tar.gz"
  podman rm open-a >/dev/null
  [[ $(ctl vdev list) == *PARKED* ]] || fail "no vdevice is parked: $(ctl vdev list)"
  stays 0.3 counted open-b >/dev/null || fail "open-b goes on without its peer"
  restore --import "$T/open.tar.gz" --pod "$pod"
  goes_on open-a open-b
  podman exec open-a ibv_devinfo -d vrdma0 >"$T/devinfo.log" 2>&1 || fail "ibv_devinfo: $(<"$T/devinfo.log")"
  refused restore 'it was restored before, and an image is restored once' restore --import "$T/open.tar.gz" --name twin --pod "$pod"
  podman rm -f -t 0 twin >"$T/twin.log" 2>&1 || fail "what is left of it cannot be removed: $(<"$T/twin.log")"
  goes_on open-a open-b
  over open-a open-b
done
podman pod rm -f -t 0 "$pod" >/dev/null

say "a container alone comes back with the device open, with a direct link or without; its peer waits meanwhile"
DEVICE=red begin direct all --security-opt "seccomp=$T/seccomp.json"
for name in direct child; do
  for end in a b; do
    goes_on $name-a $name-b
    checkpoint $name-$end
    restore $name-$end
    goes_on $name-a $name-b
  done
  say "$name: both are away"
  checkpoint $name-a
  checkpoint $name-b
  restore $name-b
  restore $name-a
  goes_on $name-a $name-b
done
over direct-a direct-b

say "a container alone comes back with its connections of rdma_cm, and a listener"
cm_end() { # NAME ARGUMENT...
  head -c 24 /dev/zero >"$T/meet/$1.progress"
  podman run -d --name "$1" --device vrdma.io/device=default -v "$T/meet:/meet" --network lab "$IMAGE" \
    cm-flow "${@:2}" 18515 "/meet/$1.progress" >"$T/$1.log" 2>&1 || fail "$1 is not started: $(<"$T/$1.log")"
}
has_said() { podman logs "$1" 2>&1 | grep -qE "$2"; } # CONTAINER PATTERN
cm_end cm-a server 0.0.0.0
wait_until 20 has_said cm-a listening || fail "cm-a: $(podman logs cm-a 2>&1)"
cm_end cm-b client "$(address cm-a)"
for end in a b; do
  goes_on cm-a cm-b
  checkpoint cm-$end
  restore cm-$end
  goes_on cm-a cm-b
done
podman kill -s TERM cm-b >/dev/null
wait_until 20 has_said cm-b '^[0-9]+ sent, [0-9]+ received$' || fail "cm-b: $(podman logs cm-b 2>&1)"
wait_until 20 has_said cm-a '^[0-9]+ sent, [0-9]+ received$' || fail "cm-a: $(podman logs cm-a 2>&1)"
podman rm -f -t 0 cm-b >/dev/null
cm_end cm-b client "$(address cm-a)"
goes_on cm-a cm-b
podman rm -f -t 0 cm-a cm-b >/dev/null

say "a container whose class has gone is not restored; once the class is there, it is"
podman run -d --name class --network lab --device vrdma.io/device=short "$IMAGE" >/dev/null 2>"$T/class.log" || fail "a container: $(<"$T/class.log")"
checkpoint class
sed -i '/short/d' /etc/vrdma/classes.conf
if podman container restore class >"$T/restore.log" 2>&1; then fail "it is restored without its class"; fi
grep -q "vrdma: .*class 'short'" "$T/restore.log" || fail "podman does not tell why: $(<"$T/restore.log")"
echo '[short]' >>/etc/vrdma/classes.conf
restore class
gids_of class >/dev/null || fail "it has no device"

goes_on child-a child-b
over child-a child-b
podman rm -f -t 0 class >/dev/null
wait_until 10 are 0 || fail "a vdevice outlives its container: $(ctl vdev list)"
