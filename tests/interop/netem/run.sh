#!/bin/bash
# run.sh [SEED]: two vdevices of two daemons in a virtual machine, whose link is a veth pair with netem(8) at both ends.
# `exchange` compares every byte and counts completions. It prints a row for each link. VRDMA_VM is the program that
# starts the machine, by default rdma-vm, with
#   run --smp 2 --module MODULE... --bind DIR --env VRDMA_BUILD=DIR --timeout SECONDS -- COMMAND
# COMMAND runs there as root, with this host's files; DIR is shared.
set -euo pipefail
VM=${VRDMA_VM:-$(command -v rdma-vm || true)}
if [[ -z $VM ]]; then
  echo "skipped: needs a program that starts virtual machines: VRDMA_VM, or rdma-vm in PATH"
  exit 77
fi
BUILD=$(realpath "${VRDMA_BUILD:?is not set: the build directory to test}")
exec "$VM" run --smp 2 --module veth --module sch_netem --env "VRDMA_BUILD=$BUILD" --env "LINKS=${LINKS:-}" \
  --timeout "${VM_LIMIT:-1800}" -- "$(realpath "$(dirname "$0")")/inside" "${1:-$RANDOM}"
