#!/bin/bash
# memory_cost.sh PROGRAM: registered memory in place takes as much as the program's own: at each moment of a registration, in
# the control group of a container with a limit, and beside small regions that lie apart.
. "$(dirname "$0")/lib.sh"
setup
start_daemon
netns_add a
loose a eth0
vdev_create va a eth0
install -m 755 "$1" "$T/cost"
in_place() { [[ $(ctl stats va | grep -c mr_reached) -eq 0 ]] || fail "memory is reached: $(ctl stats va | grep mr_reached)"; }

say "2,000 regions of a page, 1 MiB apart"
for threads in "" threads; do
  taken=$(ctl exec va -- "$T/cost" va 2000 4096 1048576 $threads) || fail "the program fails"
  say "they take $taken MiB${threads:+ beside a thread}"
  # 8 MiB of pages, and the tables of the kernel and the library.
  [[ $taken -lt 40 ]] || fail "regions of 8 MiB take $taken MiB"
done
in_place

say "40,000 regions of a page, 512 KiB apart: half of the mappings that the kernel permits remain for the program"
most=$(</proc/sys/vm/max_map_count)
if [[ $most -le 80000 ]]; then
  loose a eth1
  vdev_create many a eth1
  taken=$(ctl exec many -- "$T/cost" many 40000 4096 524288 alone $((most / 2 - 300))) || fail "the program fails: $taken"
  [[ $(stat_of many mr_reached_mappings) -gt 0 ]] || fail "no region is reached for it"
  [[ $(ctl stats many | grep -c mr_reached) -eq 1 ]] || fail "regions are reached: $(ctl stats many | grep mr_reached)"
else
  say "not tried: vm.max_map_count is $most"
fi

say "a region of 256 MiB in a control group of 320 MiB"
# With version 1 of control groups in a directory of its own, with version 2 in the root's, if it has the controller.
if [[ -e /sys/fs/cgroup/memory/memory.limit_in_bytes ]]; then
  group=/sys/fs/cgroup/memory/vr$$ limit=memory.limit_in_bytes
elif grep -qsw memory /sys/fs/cgroup/cgroup.subtree_control; then
  group=/sys/fs/cgroup/vr$$ limit=memory.max
else
  say "not tried: there are no control groups with the controller memory"
  exit 0
fi
mkdir "$group" 2>/dev/null || { say "not tried: no control group can be made"; exit 0; }
trap 'status=$?; command=$BASH_COMMAND; set +e; rmdir "$group"; finish "$status" "$command"' EXIT
echo $((320 << 20)) >"$group/$limit"
for threads in "" threads; do
  taken=$(ctl exec va -- bash -c 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"' - "$group" "$T/cost" va 1 268435456 268435456 $threads) ||
    fail "the program ends with $?${threads:+ beside a thread}"
  say "it takes $taken MiB${threads:+ beside a thread}"
done
in_place
