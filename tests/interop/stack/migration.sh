#!/bin/bash
# migration.sh direct|mediated: QEMU migrates a virtual machine over RDMA.
#
#     netns a                         netns b
#   +------------------+            +------------------+
#   | QEMU, -incoming  |    veth    |   QEMU, migrates |   an emulated machine of 64 MiB that runs its
#   |   va ------ eth0 |============| eth0 ------ vb   |   firmware; it goes from b to a
#   | 10.0.0.1         |            |         10.0.0.2 |
#   +------------------+            +------------------+
. "$(dirname "$0")/lib.sh"
mode=$1
setup
command -v qemu-system-x86_64 >/dev/null ||
  tell_and_skip "QEMU's migration" "$mode" 2 "qemu-system-x86 is not installed"
start_daemon
two_vdevices "$mode"
machine="qemu-system-x86_64 -accel tcg -m 64 -nodefaults -display none -monitor stdio"
for pin in off on; do
  # The commands of the monitor come from a pipe.
  meet_cm "migration, pin-all $pin" sh -c "{ echo 'migrate_set_capability rdma-pin-all $pin'; echo migrate_incoming rdma:0:$PORT
      until grep -qs 'VM status: running' server.log; do sleep 0.2; echo info status; done; echo quit; } | timeout 60 $machine -incoming defer" -- \
    sh -c "{ echo 'migrate_set_capability rdma-pin-all $pin'; echo migrate -d rdma:10.0.0.1:$PORT
      until grep -qs 'Migration status: \(completed\|failed\)' client.log; do sleep 0.2; echo info migrate; done; echo quit; } | timeout 60 $machine"
  grep -q 'Migration status: completed' "$T/client.log" || { tail -n 5 "$T/client.log"; fail "the migration is not completed"; }
  say "$(grep -aoE '(total time|downtime|transferred ram): .*' "$T/client.log" | tail -3 | tr -d '\r' | paste -sd ',')"
done
tell "QEMU's migration" "$mode" $PASSED $FAILED_RUNS 0
[[ $FAILED_RUNS -eq 0 ]] || fail "$FAILED_RUNS migrations failed"
