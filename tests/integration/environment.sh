#!/bin/bash
# environment.sh: what `vrdmactl exec` shows in addition to verbs, and that other processes do not
# see it.
#
#     netns a                        netns b
#   +-----------------+           +-----------+
#   | va1 -- eth0 ====|== veth ===|eth0 -- vb |
#   | va2 -- eth1     |           +-----------+
#   +-----------------+
. "$(dirname "$0")/lib.sh"
setup
start_daemon
netns_add a b
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
loose a eth1
vdev_create va1 a eth0 --tenant red
vdev_create va2 a eth1 --tenant red
vdev_create vb b eth0 --tenant red

in_exec() { local name=$1; shift; ctl exec "$name" -- "$@"; }
class=/sys/class/infiniband
equals() { # WHAT GOT WANTED
  [[ $2 == "$3" ]] || fail "$1 is '$2', not '$3'"
}
host_before=$(ls -d /sys/class/*; ls -A /dev/infiniband 2>/dev/null || true)

say "the vdevices of the namespace, and no other"
for class_name in infiniband infiniband_verbs; do
  mapfile -t own < <(ls /sys/class/$class_name 2>/dev/null)
  shown=$(in_exec va1 ls /sys/class/$class_name | wc -l)
  equals "entries of $class_name" "$shown" $((${#own[@]} + 2))
done
in_exec va1 test -d $class/va1/ports/1 -a -d $class/va2/ports/1 || fail "a vdevice is missing"
in_exec va1 test ! -e $class/vb || fail "a shows b's vdevice"
equals "the interfaces of a" "$(in_exec va1 ls /sys/class/net | xargs)" "eth0 eth1 eth1-end lo"

say "nobody writes into them"
for path in $class/va1 $class/va1/ports/1 $class/va1/device /sys/class/infiniband_verbs/uverbs${#own[@]}; do
  if in_exec va1 touch "$path/new" 2>/dev/null; then fail "$path can be written"; fi
done

say "they say what verbs says"
of_verbs() { in_exec va1 env -i "${ENVIRONMENT[@]}" ibv_devinfo -v -d va1 | sed -nE "s/^\s*$1:\s*(.*)/\1/p" | sed -n 1p; }
attribute() { in_exec va1 cat "$class/va1/$1"; }
equals node_guid "$(attribute node_guid)" "$(of_verbs node_guid)"
equals fw_ver "$(attribute fw_ver)" "$(of_verbs fw_ver)"
equals state "$(attribute ports/1/state)" "4: ACTIVE"
equals link_layer "$(attribute ports/1/link_layer)" "$(of_verbs link_layer)"
equals "the netdev" "$(in_exec va1 ls $class/va1/device/net)" eth0
in_exec va1 test -d $class/va1/device/net/eth0/statistics || fail "device/net/eth0 leads nowhere"
index=$(gid_index a va1 10.0.0.1)
equals "the GID" "$(attribute "ports/1/gids/$index")" 0000:0000:0000:0000:0000:ffff:0a00:0001
equals "its type" "$(attribute "ports/1/gid_attrs/types/$index")" "RoCE v2"
equals "its netdev" "$(attribute "ports/1/gid_attrs/ndevs/$index")" eth0

for name in vendor device subsystem_vendor subsystem_device class local_cpus local_cpulist numa_node \
  max_link_speed max_link_width; do
  [[ -n $(attribute device/$name) ]] || fail "device/$name is not there"
done
# As NCCL and Mooncake walk from a device up to where its numa_node is.
for walk in "$class/va1/device" "$class/va1/../.."; do
  device=$(in_exec va1 realpath "$walk")
  equals "the end of $walk" "$device" /sys/devices/virtual/vrdma/va1
  equals "its numa_node" "$(in_exec va1 cat "$device/numa_node")" -1
done
in_exec va1 test -d /sys/devices/virtual/net/lo || fail "/sys/devices/virtual has lost what was in it"
equals "the processors" "$(attribute device/local_cpulist)" "$(cat /sys/devices/system/cpu/online)"
equals "an empty GID" "$(attribute ports/1/gids/15)" 0000:0000:0000:0000:0000:0000:0000:0000
in_exec va1 test ! -e $class/va1/ports/1/gid_attrs/types/15 || fail "an empty GID has a type"

say "a running program sees addresses come and go, and the link"
VRDMA_RUN_DIR=$R "$BUILD/bin/vrdmactl" exec va1 -- sleep 60 &
PID[sleeper]=$!
inside() { nsenter --target "${PID[sleeper]}" --mount --root "$@"; }
wait_until 5 inside test -d $class/va1/ports || fail "the environment does not come"
ip_in a address add fd00:77::1/64 dev eth0 nodad
has_gid() { inside grep -qx "$1" -r $class/va1/ports/1/gids; }
new=fd00:0077:0000:0000:0000:0000:0000:0001
wait_until 3 has_gid $new || fail "a new address has no file"
ip_in a address delete fd00:77::1/64 dev eth0
has_no_gid() { ! has_gid "$1"; }
wait_until 3 has_no_gid $new || fail "the file of a deleted address stays"
ip_in a link set eth0 down
is_down() { [[ $(inside cat $class/va1/ports/1/state) == "1: DOWN" ]]; }
wait_until 3 is_down || fail "the port's file does not follow the link"
ip_in a link set eth0 up

say "and so it does when another daemon comes, whether the first was killed or told to end"
for end in kill_daemon stop_daemon; do
  $end
  start_daemon
  inside test -e $class/va1/ports/1/state || fail "after $end its files are gone"
  ip_in a address add fd00:77::1/64 dev eth0 nodad
  wait_until 3 has_gid $new || fail "after $end a new address has no file"
  ip_in a address delete fd00:77::1/64 dev eth0
  wait_until 3 has_no_gid $new || fail "after $end the file of a deleted address stays"
  equals "a counter after $end" "$(inside cat $class/va1/ports/1/counters/port_rcv_data)" 0
done

say "each device is in the list once, for any user"
for user in root nobody; do
  # shellcheck disable=SC2046
  listed=$(in_exec va1 $(user_prefix $user) env -i "${ENVIRONMENT[@]}" ibv_devices | sed 1,2d |
    awk '{print $1}' | xargs)
  equals "$user's list" "$listed" "va1 va2"
  # shellcheck disable=SC2046
  in_exec va1 $(user_prefix $user) bash -c ': <>/dev/infiniband/va1' ||
    fail "$user cannot open /dev/infiniband/va1"
done

say "what else is under /sys and /dev is there as before"
for path in /sys/class/tty /sys/class/mem /sys/devices/system/cpu /sys/fs/cgroup /dev/pts; do
  [[ -e $path ]] || continue
  equals "entries of $path" "$(in_exec va1 ls -A $path | wc -l)" "$(find $path -mindepth 1 -maxdepth 1 | wc -l)"
done
in_exec va1 test -d /sys/class/net/eth0/statistics || fail "links of /sys/class lead nowhere"

say "an exec in an exec, and on a vdevice of the host's own namespace"
twice() { in_exec va1 env -i PATH="$PATH" "$BUILD/bin/vrdmactl" --run-dir "$R" exec va1 -- "$@"; }
twice test ! -e /sys/class/infiniband_verbs/uverbs$((${#own[@]} + 2)) || fail "a vdevice is shown twice"
[[ -z $(twice true 2>&1) ]] || fail "an exec in an exec complains: $(twice true 2>&1)"
equals "the netdev in an exec in an exec" "$(twice ls $class/va1/device/net)" eth0
loose_commands "vr$$x" | ip -batch -
ctl vdev create vhost --netns pid:$$ --netdev "vr$$x" >/dev/null || true
on_host=$(in_exec vhost ls $class/vhost/device/net 2>&1) || true
ip link delete "vr$$x"
equals "the host's netdev" "$on_host" "vr$$x"

say "the host has nothing of it"
equals "the host's view" "$(ls -d /sys/class/*; ls -A /dev/infiniband 2>/dev/null || true)" "$host_before"

say "a deleted vdevice leaves no files, nor does a killed daemon to its successor"
ctl vdev delete va2
[[ -z $(find "$R" -name 'va2*') ]] || fail "va2 left files"
kill_daemon
[[ -n $(find "$R/sysfs" -name 'va1') ]] || fail "the killed daemon left nothing: nothing is tested"
rm -r "$S"  # a successor that knows no vdevices
start_daemon
[[ -z $(find "$R/sysfs" -mindepth 1) ]] || fail "files of a killed daemon stay"
