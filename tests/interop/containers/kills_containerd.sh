# shellcheck shell=bash
# The engine of kills.sh: containerd, by ctr. Its monitor is containerd-shim-runc-v2, one for each container.
NEEDS=(containerd ctr containerd-shim-runc-v2)
ENDS_WITH_MONITOR=1  # containerd deletes a container whose shim has ended

PAIRS=(monitor/before monitor/inside monitor/inside monitor/inside monitor/after monitor/running monitor/running
  monitor/poststop)

engine_start() {
  netns_add a b
  join a eth0 10.0.0.1/24 b eth0 10.0.0.2/24
  ip_in a route add default via 10.0.0.2
  ip_in b route add default via 10.0.0.1
  # The runtime behind vrdma-runtime: it finds the hooks in config.json.
  cat >"$T/runtime" <<END
#!/bin/bash
words=("\$@")
for ((i = 1; i < \$#; ++i)); do
  if [[ \${words[i - 1]} == --bundle && " \$* " == *" create "* ]]; then
    python3 "$here/strike.py" --call "\${words[i]}/config.json" "$T/strike" "$hook"
  fi
done
exec runc "\$@"
END
  chmod 755 "$T/runtime"
  printf 'runtime = "%s"\nrun-dir = "%s"\n' "$T/runtime" "$R" >/etc/vrdma/runtime.conf
  containerd_start 'disabled_plugins = ["io.containerd.grpc.v1.cri"]'
  podman save -q -o "$T/plain.tar" localhost/plain >"$T/save.log" 2>&1 || fail "podman save: $(<"$T/save.log")"
  ctr_ images import "$T/plain.tar" >"$T/import.log" 2>&1 || fail "ctr images import: $(<"$T/import.log")"
  image=$(ctr_ images list -q)
}
engine_stop() { containerd_stop; }
engine_version() { containerd --version; }
container() { # NAME COMMAND...
  local space=b
  [[ $1 != bystander ]] || space=a
  ctr_ run -d --with-ns "network:/run/netns/$(ns $space)" --runc-binary "$BUILD/sbin/vrdma-runtime" "$image" "$1" "${@:2}"
}
init_of() { ctr_ task list 2>/dev/null | awk -v name="$1" '$1 == name && $3 != "STOPPED" { print $2 }'; }
monitor_of() { awk '{ print $4 }' "/proc/$(init_of "$1")/stat"; }
exists() { ctr_ container info "$1" >/dev/null 2>&1; }
remove() {
  ctr_ task delete -f "$1" || true  # there may be none
  ctr_ container delete "$1"
}
groups_of_victim() { find /sys/fs/cgroup -depth -type d -path "*/$NAMESPACE/victim" 2>/dev/null || true; }  # containerd removes them later
