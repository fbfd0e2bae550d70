#!/bin/bash
# mounted.sh: a container that has only the directories of its own vdevice mounted keeps the device
# when vrdmad is restarted.
#
#     netns a                     mount namespace of the container
#   +-----------+               +-----------------------------------------------+
#   | va -- eth0|               | $T/container/netns/<cookie>  $T/container/tree |
#   +-----------+               +-----------------------------------------------+
. "$(dirname "$0")/lib.sh"
setup
start_daemon
netns_add a b
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
vdev_create va a eth0
ctl exec va -- true || fail "va has no sysfs tree"
cookie=$(cookie_of a)
mkdir -p "$T/container/netns/$cookie" "$T/container/tree"
# shellcheck disable=SC2016  # for the shell in the container
spawn container a root unshare --mount sh -c '
  mount --bind "$0/netns/$2" "$1/netns/$2" && mount --bind "$0/sysfs/$2/va" "$1/tree" &&
    touch "$1/ready" && exec sleep 1000' "$R" "$T/container" "$cookie"
wait_until 10 test -e "$T/container/ready" || fail "the container does not start"

# inside COMMAND...: in the container.
inside() {
  nsenter --mount --net --target "${PID[container]}" -- env -i "${ENVIRONMENT[@]}" \
    VRDMA_RUN_DIR="$T/container" timeout 30 "$@"
}
gid() { inside cat "$T/container/tree/device/infiniband/va/ports/1/gids/1"; }
has_gid() { [[ $(gid) == *":$1" ]]; }
works() { inside ibv_devinfo -d va >/dev/null || fail "$1: the container has no device any more"; }
inode() { stat -c %i "$R/netns/$cookie" "$R/sysfs/$cookie/va"; }
address() { ip_in a address replace "$1/24" dev eth0 && ip_in a address delete "$2/24" dev eth0; }

works "at first"
has_gid 0a00:0001 || fail "the tree shows $(gid)"
before=$(inode)
for how in kill_daemon stop_daemon; do
  say "$how, and a new daemon"
  $how
  address 10.0.1.3 10.0.0.1
  start_daemon
  [[ $(inode) == "$before" ]] || fail "$how: the directories are others: $before, $(inode)"
  works "$how"
  wait_until 5 has_gid 0a00:0103 || fail "$how: the tree still shows $(gid)"
  address 10.0.0.1 10.0.1.3
  wait_until 5 has_gid 0a00:0001 || fail "$how: the tree does not follow the address: $(gid)"
done

say "a vdevice that is lost meanwhile"
kill_daemon
hide_netns a
start_daemon
[[ $(ctl vdev list) == *LOST* ]] || fail "va is not lost: $(ctl vdev list)"
[[ $(inode) == "$before" ]] || fail "the directories of a lost vdevice are others"
show_netns a
address 10.0.1.3 10.0.0.1
is_there() { [[ $(ctl vdev list) == *ACTIVE* ]]; }
wait_until 20 is_there || fail "va is not restored: $(ctl vdev list)"
works "after it was lost"
wait_until 5 has_gid 0a00:0103 || fail "after it was lost, the tree still shows $(gid)"

say "the directories end with the last vdevice of the namespace"
ctl vdev delete va >/dev/null
[[ ! -e $R/netns/$cookie && ! -e $R/sysfs/$cookie ]] || fail "its directory is left: $(ls "$R"/*/"$cookie")"
