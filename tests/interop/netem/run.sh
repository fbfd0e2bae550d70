#!/bin/bash
# run.sh [SEED]: two vdevices of two daemons in a virtual machine, whose link is a veth pair with netem(8) at both ends.
# `exchange` compares every byte and counts completions. It prints a row for each link. machine/start starts the machine, or
# the program that VRDMA_VM names, by the same options.
set -euo pipefail
VM=${VRDMA_VM:-$(realpath "$(dirname "$0")/../machine/start")}
BUILD=$(realpath "${VRDMA_BUILD:?is not set: the build directory to test}")
exec "$VM" run --smp 2 --module veth --module sch_netem --env "VRDMA_BUILD=$BUILD" --env "LINKS=${LINKS:-}" \
  --timeout "${VM_LIMIT:-1800}" -- "$(realpath "$(dirname "$0")")/inside" "${1:-$RANDOM}"
