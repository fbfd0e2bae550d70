# shellcheck shell=bash
# What tests of this folder begin with: a machine whose kernel's vmw_pvrdma drives the vdevice vb of the host.
#
#     netns a            netns b
#   +----------+       +--------------------------------------+        virtual machine
#   | va - eth0|=veth==| eth0 - vb - vrdma-pvrdma =====socket=|=====+---------------------+
#   | 10.0.0.1 |       |  \                                   |     | vmw_pvrdma0         |
#   +----------+       |   what is not RoCE v2 ==========tap==|=====| eth0 (vmxnet3)      |
#                      | 10.0.0.2                             |     | 10.0.0.2            |
#                      +--------------------------------------+     +---------------------+
#
# eth0 of b and that of the machine have the same addresses: the machine has the network, but for RoCE v2, which is the
# vdevice's (divide).
. "$(dirname "$0")/../../integration/lib.sh"
. "$(dirname "$0")/../machine/programs.sh"
here=$(realpath "$(dirname "$0")")
setup
start_daemon
netns_add a b
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
vdev_create va a eth0 --tenant red --fabric shared --addresses 0.0.0.0/0,::/0
vdev_create vb b eth0 --tenant blue --fabric shared --addresses 0.0.0.0/0,::/0 --allow qp1
ip_in b tuntap add dev tap mode tap
ip_in b link set tap up mtu 4200
"$here/divide" "$(ns b)" eth0 tap
INDEX_A=$(gid_index a va 10.0.0.1)
MAC=$(ip_in b -o link show dev eth0 | sed -E 's/.*link\/ether ([^ ]+).*/\1/')

# start_device: as an operator does; ${PID[device]} is vrdma-pvrdma.
start_device() {
  "$BUILD/bin/vrdmactl" --run-dir "$R" vdev export vb --socket "$T/vb.sock" >"$T/device.log" 2>&1 </dev/null &
  PID[device]=$!
  wait_until 10 device_is_ready || fail "vrdma-pvrdma does not become ready"
}
device_is_ready() {
  ended "${PID[device]}" && fail "vrdma-pvrdma ends: $(<"$T/device.log")"
  grep -q '^ready' "$T/device.log"
}
# boot_guest: waits until its port is active.
boot_guest() {
  local began=${EPOCHREALTIME/./}
  rm -rf "$T/vm"  # of the machine before
  prepare_machine "$BUILD/tests/interop/vrdma_exchange"
  boot --netns "$(ns b)" --tap tap --mtu 4200 --ip 10.0.0.2/24 --mac "$MAC" --vdevice "$T/vb.sock" \
    --memory 256 --timeout 600 -- "$here/inside" "$T/vm" 10.0.0.2
  DEVICE_B=vmw_pvrdma0
  INDEX_B=$(<"$T/vm/index")
  say "Linux $(<"$T/vm/kernel"), active after $(((${EPOCHREALTIME/./} - began) / 1000)) ms"
}
