#!/bin/bash
# pingpong.sh direct|mediated root|nobody: rdma-core's example programs, unmodified.
#
#     netns a                 netns b
#   +-----------+           +-----------+
#   | server    |   veth    |    client |
#   | va -- eth0|===========|eth0 -- vb |     va, vb: one tenant (direct), or
#   | 10.0.0.1  |           | 10.0.0.2  |     two tenants in one fabric (mediated)
#   +-----------+           +-----------+
. "$(dirname "$0")/lib.sh"
mode=$1 user=$2
setup
start_daemon
two_vdevices "$mode"

pair "$user" ibv_rc_pingpong -g GID
pair "$user" ibv_rc_pingpong -g GID -e
pair "$user" ibv_rc_pingpong -g GID -c
pair "$user" ibv_rc_pingpong -g GID -e -c -s 1048576 -n 50
pair "$user" ibv_uc_pingpong -g GID
pair "$user" ibv_uc_pingpong -g GID -e -c
pair "$user" ibv_ud_pingpong -g GID
pair "$user" ibv_ud_pingpong -g GID -e -c
pair "$user" ibv_srq_pingpong -g GID
pair "$user" ibv_srq_pingpong -g GID -e -c
