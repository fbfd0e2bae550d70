# shellcheck shell=bash
# What tests of this folder begin with: a machine whose kernel's vmw_pvrdma drives the vdevice vb of the host.
#
#     netns a            netns w             virtual machine               netns b
#   +----------+       +---------+       +---------------------+        +-------------------------+
#   | va - eth0|=veth==| bridge =|==tap==|eth0 (vmxnet3)       |        | eth0, of the same       |
#   | 10.0.0.1 |       |         |       |10.0.0.2             |        | addresses, reaches      |
#   +----------+       +---------+       |                     |        | nothing                 |
#                                        |vmw_pvrdma0          |=socket=| vb - vrdma-pvrdma       |
#                                        +---------------------+        +-------------------------+
#
# Programs find each other over the bridge; what they send by RDMA goes from vb to va through memory.
. "$(dirname "$0")/../../integration/lib.sh"
. "$(dirname "$0")/../machine/programs.sh"
here=$(realpath "$(dirname "$0")")
setup
start_daemon
netns_add a b w
join a eth0 10.0.0.1/24 w port 10.0.0.3/24
ip_in w address flush dev port
ip_in w link add bridge mtu 4200 type bridge
ip_in w link set port master bridge
ip_in w link set bridge up
loose b eth0 4200
ip_in b address add 10.0.0.2/24 dev eth0
vdev_create va a eth0 --tenant red --fabric shared --addresses 0.0.0.0/0,::/0
vdev_create vb b eth0 --tenant blue --fabric shared --addresses 0.0.0.0/0,::/0 --allow qp1
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
  boot --netns "$(ns w)" --bridge bridge --tap tap --mtu 4200 --ip 10.0.0.2/24 --mac "$MAC" --vdevice "$T/vb.sock" \
    --memory 256 --timeout 600 -- "$here/inside" "$T/vm" 10.0.0.2
  DEVICE_B=vmw_pvrdma0
  INDEX_B=$(<"$T/vm/index")
  say "Linux $(<"$T/vm/kernel"), active after $(((${EPOCHREALTIME/./} - began) / 1000)) ms"
}
