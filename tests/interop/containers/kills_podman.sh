# shellcheck shell=bash
# The engine of kills.sh: podman.
NEEDS=(conmon)
ENDS_WITH_MONITOR=  # conmon only watches

PAIRS=(runtime/before runtime/inside runtime/inside runtime/after runtime/poststop
  monitor/before monitor/inside monitor/after monitor/running
  hook/before hook/inside hook/inside hook/inside hook/poststop
  daemon/before daemon/inside daemon/inside daemon/inside daemon/after daemon/running daemon/poststop)

engine_start() {
  [[ -x /usr/lib/podman/netavark ]] || skip "netavark is not installed"
  ctl cdi generate
  strike_by /etc/cdi/vrdma.json
  podman network create --disable-dns lab >"$T/network.log" 2>&1 || skip "podman cannot make a network here: $(tail -1 "$T/network.log")"
}
engine_stop() { :; }
engine_version() { echo "$(podman --version), $(conmon --version | head -1)"; }
container() { # NAME COMMAND...
  podman run -d --name "$1" --cgroup-parent "$GROUP" --network lab --device vrdma.io/device=default localhost/plain "${@:2}"
}
init_of() { podman inspect -f '{{.State.Pid}}' "$1" 2>/dev/null || true; }
monitor_of() { podman inspect -f '{{.State.ConmonPid}}' "$1"; }
exists() { podman container exists "$1"; }
remove() { podman rm -f -t 0 "$1"; }
groups_of_victim() {
  find /sys/fs/cgroup -depth -type d -path "*$GROUP/libpod-*" ! -path "*$(podman inspect -f '{{.Id}}' bystander)*" 2>/dev/null
}
