#!/bin/bash
# crowd.sh CONTAINERS PODMANS: many containers that start at the same moment all get a device, and leave nothing.
#
#     containers 1 to CONTAINERS, by runc       bridge
#   +---------------------+
#   | vrdma0 ---- eth0 ===|======================+====== ...
#   | 10.1.0.NUMBER       |
#   +---------------------+
#
# Then as many as PODMANS by podman. Prints the hook's time for each, and for containers that start one at a time.
here=$(realpath "$(dirname "$0")")
. "$here/lib.sh"
for program in runc podman gcc; do need $program; done
apart "$@"
setup
[[ -x $BUILD/lib/vrdma/vrdma-oci-hook ]] || skip "the hook is not built with a sanitizer"
containers=$1 podmans=$2
export GROUP=/vr$$
crowd_stop() {
  local id
  for id in $(runc_ list -q 2>/dev/null); do runc_ delete -f "$id" >/dev/null 2>&1 || true; done
  podman_stop
}
trap 'status=$? command=$BASH_COMMAND; set +e; crowd_stop; remove_groups; finish "$status" "$command"' EXIT
own_etc
podman_start
# Like /run.
mkdir "$R"
mount -t tmpfs -o mode=755 tmpfs "$R"
start_hooks_daemon --cgroup "$GROUP-workers"
WORKERS_END=1  # because end_workers kills them
hook=$BUILD/lib/vrdma/vrdma-oci-hook
gcc -O1 -o "$T/timed" "$here/timed.c"
times=$T/times
B=$T/bundles
runc_() { runc --root "$T/runc" "$@"; }

# ---- the bundles --------------------------------------------------------------------------------

root_of bookworm
mkdir -p "$B"/shared/{up,timed}
mkfifo "$B/shared/gate"
# shellcheck disable=SC2016  # the container's
"$here/bundles.py" "$B" "$containers" "$T/timed" "$times" "$hook" --run-dir "$R" -- \
  bash -c 'ibv_devinfo -d vrdma0 >/shared/up/$NUMBER.log 2>&1 && mv /shared/up/$NUMBER.log /shared/up/$NUMBER && : </shared/gate'
{
  echo "link add bridge type bridge"
  echo "link set bridge up"
  for ((i = 1; i <= containers; ++i)); do
    mkdir "$B/$i"/{root,upper,work}
    : >"$B/$i/netns"
    unshare --net="$B/$i/netns" true
    mount -t overlay -o "lowerdir=$ROOT,upperdir=$B/$i/upper,workdir=$B/$i/work" overlay "$B/$i/root"
    echo "link add c$i type veth peer name eth0 netns $B/$i/netns"
    echo "link set c$i master bridge up"
  done
} >"$T/links"
ip -batch "$T/links" >"$T/links.log" 2>&1 || skip "no bridge can be made here: $(head -1 "$T/links.log")"
for ((i = 1; i <= containers; ++i)); do
  printf '%s\n' "link set lo up" "address add 10.1.0.$i/16 dev eth0" "link set eth0 up" | nsenter --net="$B/$i/netns" -- ip -batch -
done

# begin NUMBER...: starts these containers.
begin() {
  local i
  for i in "$@"; do
    runc_ run --bundle "$B/$i" "c$i" >"$T/c$i.out" 2>&1 &
    PID[c$i]=$!
  done
}
# Each has shown its device, or has ended.
all_up() {
  local i
  [[ $(find "$B/shared/up" -name '[0-9]*' ! -name '*.log' | wc -l) -eq $1 ]] && return 0
  for i in "${!PID[@]}"; do
    ! ended "${PID[$i]}" || fail "container $i ends: $(cat "$T/$i.out" "$B/shared/up/${i#c}.log" 2>/dev/null)"
  done
  return 1
}
# Lets the containers end, which wait for it.
end_all() {
  : >"$B/shared/gate"
  local i
  for i in "${!PID[@]}"; do
    reap "$i" 30
    [[ $REAPED -eq 0 ]] || fail "$i ends with $REAPED: $(<"$T/$i.out")"
  done
  rm -f "$B"/shared/up/*
}
count() { ctl vdev list -o json | grep -c '"name":' || true; }
# took STAGE: of what is in $times, which is then removed.
took() {
  awk -v stage="$1" '$1 == stage { print $2 }' "$times" | sort -n |
    awk '{ t[NR] = $1 / 1000 } END { printf "p50 %.1f ms, p99 %.1f ms, max %.1f ms, of %d\n", t[int((NR + 1) / 2)], t[int((NR * 99 + 99) / 100)], t[NR], NR }'
}
no_workers() { [[ -z $(workers) ]]; }
# An idle worker ends after 10 s; this is sooner.
end_workers() {
  workers | xargs -r kill -9
  wait_until 30 no_workers || fail "there are workers: $(workers)"
}
same_as_before() {
  end_workers
  wait_until 30 remains_as "$T/before" || fail "$1: something is left: $(<"$T/remains-diff")"
}

say "$(runc --version | head -1), podman $(podman version -f '{{.Client.Version}}'), $(nproc) processors"
say "one container, which brings what the daemon has from its first vdevice on"
begin 1
wait_until 30 all_up 1 || fail "the first container does not start"
end_all
rm "$times"
end_workers
remember "$T/before" 0

say "$containers containers at once"
began=${EPOCHREALTIME/./}
# shellcheck disable=SC2046  # numbers
begin $(seq "$containers")
wait_until 200 all_up "$containers" || fail "$(find "$B/shared/up" -name '[0-9]*' ! -name '*.log' | wc -l) of $containers have a device"
say "all have a device after $(((${EPOCHREALTIME/./} - began) / 1000)) ms"
[[ $(count) -eq $containers ]] || fail "there are $(count) vdevices"
remains >"$T/at-once"
say "meanwhile: $(grep -c ^file "$T/at-once") files in the run directory, $(awk '/^workers/ { print $2 }' "$T/at-once") workers, $(awk '/^descriptors control/ { print $3 }' "$T/at-once") descriptors of control"
say "createRuntime at once: $(took createRuntime)"
end_all
say "poststop at once: $(took poststop)"
rm "$times"
same_as_before "after $containers containers at once"

say "one at a time"
for i in {1..30}; do
  begin $((i % containers + 1))
  wait_until 30 all_up 1 || fail "container $((i % containers + 1)) does not start"
  end_all
done
say "createRuntime one at a time: $(took createRuntime)"
say "poststop one at a time: $(took poststop)"
same_as_before "after containers one at a time"

say "$podmans containers of podman at once"
ctl cdi generate
make_image plain bookworm 'ldconfig -r .'
podman network create --disable-dns lab >"$T/network.log" 2>&1 || skip "podman cannot make a network here: $(tail -1 "$T/network.log")"
podman_run() { podman run --rm --cgroup-parent "$GROUP" --network lab --device vrdma.io/device=default localhost/plain ibv_devinfo -d vrdma0; }
podman_run >"$T/first.log" 2>&1 || fail "podman: $(<"$T/first.log")"
end_workers
remember "$T/before" 0
for ((i = 1; i <= podmans; ++i)); do
  podman_run >"$T/podman$i.out" 2>&1 &
  PID[podman$i]=$!
done
for i in "${!PID[@]}"; do
  reap "$i" 120
  [[ $REAPED -eq 0 ]] || fail "$i ends with $REAPED: $(<"$T/$i.out")"
done
same_as_before "after $podmans containers of podman"
