#!/bin/bash
# upgrade.sh OLD lives|begins|ends: a vrdmad of another build, OLD, is replaced by ours while a program uses it.
# Where ours serves the protocol of that build's libraries, others of them begin sessions, and the program's
# session lives; if the state that OLD keeps of it has another form, the program is told
# IBV_EVENT_DEVICE_FATAL (begins). Otherwise (ends) it is told so too, those libraries are refused, and ours work.
#
#     netns a                 netns b
#   +-----------+           +-----------+
#   | va -- eth0|===========|eth0 -- vb |     ibv_asyncwatch in a, then ibv_rc_pingpong between both
#   +-----------+           +-----------+
. "$(dirname "$0")/../../integration/lib.sh"
old=$(realpath "$1") outcome=$2
setup
mkdir "$T/old"
cp -L "$old"/lib/vrdma/*.so.* "$T/old/"

netns_add a b
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
env -u VRDMA_RUN_DIR "$old/sbin/vrdmad" --run-dir "$R" --state-dir "$S" >"$T/old.log" 2>&1 &
PID[old]=$!
old_ctl() { VRDMA_RUN_DIR=$R timeout 30 "$old/bin/vrdmactl" "$@"; }
answers() { old_ctl vdev list >/dev/null 2>&1; }
wait_until 20 answers || fail "the older vrdmad does not answer"
for side in a b; do
  old_ctl vdev create "v$side" --netns "$(ns $side)" --netdev eth0 --tenant red >/dev/null
done
libraries=("${ENVIRONMENT[@]}")
ENVIRONMENT+=(LD_LIBRARY_PATH="$T/old")
spawn watch a root stdbuf -oL ibv_asyncwatch -d va
has_opened() { grep -q 'async event' "$T/watch.log"; }
wait_until 20 has_opened || fail "the program does not open va: $(<"$T/watch.log")"

say "the next vrdmad is ours"
kill -9 "${PID[old]}"
wait "${PID[old]}" 2>/dev/null || true
unset "PID[old]"
start_daemon
[[ $(ctl vdev list) == *va* && $(ctl vdev list) == *vb* ]] || fail "the vdevices are not those of before"
is_told() { grep -q 'DEVICE_FATAL\|event_type.*8' "$T/watch.log"; }
loses_its_device() {
  wait_until 30 is_told || fail "the program does not learn that its device is gone: $(<"$T/watch.log")"
  grep -q "cannot be taken over: its state is of another version" "$T/vrdmad.log" || fail "nobody says why"
  kill -9 "${PID[watch]}"
}
works() { # WHOSE
  INDEX_A=$(gid_index a va 10.0.0.1)
  INDEX_B=$(gid_index b vb 10.0.0.2)
  pair root ibv_rc_pingpong -g GID -n 100 || fail "$1 libraries do not work"
}
case $outcome in
  lives)
    works "the older"
    if is_told; then fail "the program lost its device: $(<"$T/watch.log")"; fi
    if ended "${PID[watch]}"; then fail "the program ended: $(<"$T/watch.log")"; fi
    ;;
  begins)
    loses_its_device
    works "the older"
    ;;
  ends)
    loses_its_device
    if on a root ibv_devinfo -d va >"$T/refused.log" 2>&1; then fail "libraries of an older protocol are served"; fi
    ENVIRONMENT=("${libraries[@]}")
    works our
    ;;
esac
