# shellcheck shell=bash
# What roce.sh and roce_changes.sh begin with: two tenants in fabrics that may reach the network. Their vdevices talk by
# packets of RoCE v2 on the wire between their namespaces, as on two hosts.
#
#     netns a                    netns b
#   +---------------+          +---------------+
#   | va (red) eth0 |===veth===| eth0 (blue) vb|
#   | 10.0.0.1      |          |      10.0.0.2 |
#   | fd00::1       |          |       fd00::2 |
#   +---------------+          +---------------+
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/wire.sh"
setup
start_daemon
netns_add a b
join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
for space in a b; do $(enter $space) sysctl -qw net.ipv6.conf.eth0.accept_dad=0; done
ip_in a address add fd00::1/64 dev eth0
ip_in b address add fd00::2/64 dev eth0
vdev_create va a eth0 --tenant red --fabric left
vdev_create vb b eth0 --tenant blue --fabric right

# index VDEVICE ADDRESS: of that GID.
index() { ctl vdev show "$1" -o json | python3 -c '
import json, sys
print(next(g["index"] for g in json.load(sys.stdin)[0]["gids"] if g["gid"] == sys.argv[1]))' "$2"; }
# meet ADDRESS COMMAND...: a server in b, and its client in a.
meet() {
  tcp_server b root "${@:2}"
  spawn client a root "${@:2}" "$1"
  both_end_well "${@:2}"
}
pingpong() { meet "$1" "ibv_${2}_pingpong" -p $PORT -n 200 "${@:3}"; }
cm() { # NAMESPACE-OF-SERVER NAMESPACE-OF-CLIENT SERVER CLIENT
  # shellcheck disable=SC2086
  listening_server "$1" root $3
  # shellcheck disable=SC2086
  spawn client "$2" root $4
  both_end_well "$4"
}
# in_use: va has a queue pair that is connected over the network, and its figures are listed.
in_use() { [[ $(ctl qp list va) =~ RC\ +RTS\ +network\ +10\.0\.0\.2\ +[0-9]+\ +[0-9]+\ +[0-9]+\ +[0-9]+\ +[0-9]+\ +[0-9]+ ]]; }
