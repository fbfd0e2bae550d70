# shellcheck shell=bash
# What run.sh and speed.sh begin with: vrdmad runs in a virtual machine, and its vdevice talks to one of the host. MTU, 1500
# by default, is that of the link.
#
#     netns a                        virtual machine
#   +-----------------+            +------------------------+
#   | va -- eth0 (tap)|============|eth0 (virtio-net) -- vm0|
#   | 10.0.0.1        |  RoCE v2   |10.0.0.2                |
#   |  vrdmad         |            | another vrdmad         |
#   +-----------------+            +------------------------+
. "$(dirname "$0")/../../integration/lib.sh"
. "$(dirname "$0")/../machine/programs.sh"
here=$(realpath "$(dirname "$0")")
setup
prepare_machine "$BUILD/tests/interop/vrdma_exchange"
start_daemon
netns_add a
ip_in a tuntap add dev eth0 mode tap
ip_in a address add 10.0.0.1/24 dev eth0
ip_in a link set eth0 up mtu "${MTU:-1500}"
vdev_create va a eth0 --fabric outside
ctl fabric set outside --reach network >/dev/null
INDEX_A=$(gid_index a va 10.0.0.1)
boot --netns "$(ns a)" --tap eth0 --ip 10.0.0.2/24 --mtu "${MTU:-1500}" --env "VRDMA_BUILD=$BUILD" -- "$here/inside" "$T/vm"
DEVICE_B=vm0
INDEX_B=$(<"$T/vm/index")
say "Linux $(<"$T/vm/kernel") in the machine, $SECONDS s"
