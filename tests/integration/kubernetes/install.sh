#!/bin/bash
# install.sh: the DaemonSets of packaging/kubernetes on a node with containerd 1.7: the image of the build, the manifests of
# kubectl 1.20, the volumes and rights that they name. The kubelet is kubelet.py.
#
#   kubectl kustomize --- kubelet.py --- containerd --+-- pod vrdmad: init container install, vrdmad, classes
#                                                     +-- pod vrdma-device-plugin
#                                                     +-- pods shop/..., which ask for vrdma.io/rdma: 1
here=$(realpath "$(dirname "$0")")
. "$here/lib.sh"
need podman
need_pods "$@"
packages=$here/../../../packaging/kubernetes
setup
pods_setup
root_of bookworm kubectl
KUBECTL=$ROOT/usr/bin/kubectl
DEPLOY=$KUBERNETES/deploy.py
[[ $("$KUBECTL" version --client --short) == *v1.20.* ]] || fail "kubectl is $("$KUBECTL" version --client --short)"

# ---- the image and the manifests --------------------------------------------------------------------

archive=$T/vrdma.oci.tar
"$packages/image" "$BUILD" "$archive" >"$T/build.log" 2>&1 || fail "no image: $(<"$T/build.log")"
kib=$(($(stat -c %s "$archive") / 1024))
say "the image has $kib KiB"
[[ $kib -le $((30 * 1024)) ]] || fail "the image has more than 30 MiB: $kib KiB"

cp -r "$packages" "$T/kubernetes"
# rendered OVERLAY: writes $T/OVERLAY.yaml.
rendered() { "$KUBECTL" kustomize "$T/kubernetes/$1" >"$T/$1.yaml" 2>"$T/kustomize.log" || fail "kubectl kustomize $1: $(<"$T/kustomize.log")"; }
declare -A runtime_of=([plain]=/run/containerd [dra]=/run/containerd [kind]=/run/containerd [minikube]=/run/containerd [k3s]=/run/k3s/containerd [crio]=/run/crio)
for overlay in plain kind minikube k3s crio dra; do
  rendered $overlay
  checked=0
  "$DEPLOY" check "$T/$overlay.yaml" "$archive" >"$T/check" 2>&1 || checked=$?
  [[ $checked -ne 77 ]] || skip "$(<"$T/check")"
  [[ $checked -eq 0 ]] || fail "$overlay: $(<"$T/check")"
  grep -qx " *path: ${runtime_of[$overlay]}" "$T/$overlay.yaml" || fail "$overlay does not mount ${runtime_of[$overlay]}"
  say "$overlay: $(<"$T/check")"
done

# ---- a node -----------------------------------------------------------------------------------------

# Nothing of vrdma is there, not even a directory.
mount -t tmpfs tmpfs /run
mkdir /run/netns
mount -t tmpfs tmpfs /opt
mkdir "$T"/lib-{upper,work}
mount -t overlay -o "lowerdir=/var/lib,upperdir=$T/lib-upper,workdir=$T/lib-work" overlay /var/lib
rm -rf /etc/cdi /etc/vrdma /var/lib/{vrdma,kubelet}
mkdir -p /etc/cdi /opt/other
# shellcheck disable=SC2034  # of lib.sh
R=/run/vrdma S=/var/lib/vrdma
CONTAINERD=/run/containerd/containerd.sock
DEVICE_PLUGINS=/var/lib/kubelet/device-plugins
files_of_node() { find /opt /etc/cdi -printf '%p %y %l\n' | sort; }
image=$(sed -n 's/^ *image: //p' "$T/plain.yaml" | sort -u)
[[ $image == *[!$' \n']* && $image != *$'\n'* ]] || fail "the manifests name the images $image"

runtime_start  # which makes a directory in /opt itself
before=$(files_of_node)
import_image "$T/image.tar"
import_image "$archive"
ctr_ images tag "localhost/vrdma:${image##*:}" "$image" >"$T/tag.log" 2>&1 || fail "ctr images tag: $(<"$T/tag.log")"
kubelet_start --runtime "$CONTAINERD" --image "$POD_IMAGE" --cgroup "/vr$$" --logs "$T"
log_of() { cut -d ' ' -f 4- "$T/$1.log"; } # POD-CONTAINER-ATTEMPT: without the time, the stream and a tag

say "containerd that does not read CDI specifications"
if ask apply "$T/plain.yaml" >"$T/asked" 2>&1; then fail "the init container does not complain"; fi
[[ $(<"$T/asked") == 'vrdma/vrdmad: Init:Error: install ends with 1' ]] || fail "it fails otherwise: $(<"$T/asked")"
grep -q 'containerd .*1\.7\..* does not read CDI specifications, by which pods get vdevices: add these lines to /etc/containerd/config.toml, and restart containerd$' \
  <(log_of vrdmad-install-0) || fail "the sentence is missing: $(log_of vrdmad-install-0)"
[[ $(find /opt /etc/cdi -name '*vrdma*' ! -type d) == '' ]] || fail "it has installed something: $(files_of_node)"
asked delete vrdma/vrdmad
if ask probe vrdma/vrdma-device-plugin readiness >"$T/asked" 2>&1; then fail "the plugin is ready without vrdmad"; fi
say "the plugin meanwhile: $(<"$T/asked")"

say "the lines of the log are what is missing"
mapfile -t lines < <(log_of vrdmad-install-0 | sed -n '/^ *\[plugins/,/^ *$/p' | grep .)
[[ ${lines[0]} =~ ^\ *"$CRI"\]$ ]] || fail "the lines are ${lines[*]}"
containerd_end
runtime_start "${lines[@]:1}"
asked apply "$T/plain.yaml"
ready() { ask probe "vrdma/$1" readiness >"$T/probed" 2>&1; } # DAEMONSET
become_ready() {
  local name
  for name in vrdmad vrdma-device-plugin; do
    wait_until 20 ready $name || fail "$name is not ready: $(<"$T/probed")"
  done
}
become_ready
asked probe vrdma/vrdma-device-plugin liveness
becomes 10 rdma 64 64
say "$(log_of vrdmad-install-0 | grep 'reads CDI')"
[[ $(readlink -f /opt/vrdma/current/vrdma-oci-hook) == /opt/vrdma/${image##*:}/vrdma-oci-hook ]] || fail "no hook: $(files_of_node)"

# id_of, pid_of POD CONTAINER
id_of() { ask containers "vrdma/$1" | awk -v name="$2" '$1 == name { print $2 }'; }
pid_of() { ctr_ task ls | awk -v id="$(id_of "$@")" '$1 == id { print $2 }'; }
# rights POD CONTAINER PATTERN...: lines of /proc/PID/status of its first process, whose root is read-only.
rights() {
  local pid pattern
  pid=$(pid_of "$1" "$2")
  for pattern in '^NoNewPrivs:\s*1$' "${@:3}"; do
    grep -qE "$pattern" "/proc/$pid/status" || fail "$2 has not $pattern: $(grep -E '^(Cap|NoNew|Seccomp)' "/proc/$pid/status")"
  done
  awk '$5 == "/" && $6 ~ /^ro(,|$)/ { found = 1 } END { exit !found }' "/proc/$pid/mountinfo" || fail "the root of $2 can be written"
}
say "the containers have the rights of the manifests"
rights vrdma-device-plugin plugin '^CapBnd:\s*0+$' '^CapEff:\s*0+$'
rights vrdmad classes '^CapBnd:\s*0+$' '^CapEff:\s*0+$'
rights vrdmad vrdmad '^CapEff:\s*0+$'  # it keeps none itself
wanted=$(sed -n '/^ *add:$/,/^ *drop:$/s/^ *- /CAP_/p' "$T/plain.yaml" | sort | xargs)
given=$(ctr_ containers info "$(id_of vrdmad vrdmad)" | /usr/bin/python3 -c '
import json, sys
spec = json.load(sys.stdin)["Spec"]
print(*sorted(spec["process"]["capabilities"]["bounding"]), *(["seccomp"] if spec["linux"].get("seccomp") else []))')
[[ -n $wanted && $given == "$wanted" ]] || fail "vrdmad has $given instead of $wanted"

# ---- pods -------------------------------------------------------------------------------------------

say "two restricted pods of a namespace"
pod shop/one --limit vrdma.io/rdma=1
pod shop/two --limit vrdma.io/rdma=1
spread shop/one shop/two

# containers: of both DaemonSets; the same lines later mean that none was started again.
containers() { for name in vrdmad vrdma-device-plugin; do asked containers vrdma/$name; cat "$T/asked"; done; }
# attempt CONTAINER: of vrdmad's pod.
attempt() { ask containers vrdma/vrdmad | awk -v name="$1" '$1 == name { print $3 }'; }

say "a class that is added to the ConfigMap is a resource, and nothing is started again"
all=$(containers)
printf '\n[more]\ntenant = namespace\nfabric = namespace\ndevices = 3\n' >>"$T/kubernetes/base/classes.conf"
rendered plain
asked apply "$T/plain.yaml"
becomes 10 more 3 3
pod shop/three --limit vrdma.io/more=1
asked exec shop/three -- ibv_devinfo -d vrdma0
asked delete shop/three
[[ $(containers) == "$all" ]] || fail "containers are started again: $all, then $(containers)"

# ---- deaths under traffic -----------------------------------------------------------------------------

goes_on() {
  local name
  wait_until 20 works_or_ended "$(vdev_of shop/two)" || fail "the traffic ends: $(<"$T/client.log")"
  for name in client server; do
    ! ended "${PID[$name]}" || fail "the $name has ended: $(<"$T/$name.log")"
  done
}

say "vrdmad is killed under traffic, and started again by the kubelet"
endless shop/one shop/two
ctr_ task kill -s SIGKILL "$(id_of vrdmad vrdmad)" || fail "ctr task kill"
is_restarted() { [[ $(attempt vrdmad) -eq 1 ]] && ready vrdmad; }
wait_until 20 is_restarted || fail "vrdmad is not started again: $(<"$T/probed")"
goes_on
[[ $(attempt classes) -eq 0 ]] || fail "the container 'classes' is started again too"

say "the pod of vrdmad is replaced under traffic"
asked delete vrdma/vrdmad
asked apply "$T/plain.yaml"
become_ready
goes_on
becomes 10 rdma 64 64
for name in one two; do asked restart-container shop/$name; done  # ends both
for name in client server; do reap $name 20; done
pod shop/four --limit vrdma.io/rdma=1
spread shop/four shop/two

# ---- the end ----------------------------------------------------------------------------------------

say "vrdma-node uninstall leaves the node as it was"
for name in one two four; do asked delete shop/$name; done
no_vdevices() { [[ $(ctl vdev list | wc -l) -eq 1 ]]; }
wait_until 10 no_vdevices || fail "a vdevice outlives its pod: $(ctl vdev list)"
for name in vrdmad vrdma-device-plugin; do asked delete vrdma/$name; done
[[ -z $(find /run/vrdma $DEVICE_PLUGINS -type s ! -name kubelet.sock) ]] || fail "sockets are left: $(find /run/vrdma $DEVICE_PLUGINS)"
asked once vrdma/vrdmad --container install -- /usr/bin/vrdma-node uninstall --root /host
[[ $(files_of_node) == "$before" ]] || fail "files are left: $(diff <(echo "$before") <(files_of_node))"
