#!/bin/bash
# sandbox.sh podman RUNTIME|docker: vrdma-sandbox in containers of that engine, with and without privileges. It runs there,
# or ends at once with a sentence whose option lets it run.
#
#     container of an engine: its profile of seccomp, few or no capabilities, perhaps another user
#   +----------------------------------------------------------+
#   |  vrdma-sandbox: namespaces of its own                     |
#   |    vrdmad    vrdma0 -- eth0 ==== veth ==== eth0 -- vrdma1 |
#   +----------------------------------------------------------+
here=$(realpath "$(dirname "$0")")
. "$here/lib.sh"
engine=$1
case $engine in
  podman) for program in podman "$2"; do need "$program"; done ;;
  docker) for program in dockerd docker containerd ctr runc; do need $program; done ;;
esac
apart "$@"
setup
[[ -x $BUILD/bin/vrdma-sandbox && -x $BUILD/sbin/vrdmad-worker ]] || skip "vrdma-sandbox or worker processes are not built"
[[ -z ${VRDMA_TEST_PRELOAD:-} ]] || skip "the image has no sanitizer"
if [[ $engine == podman ]]; then
  ip link set lo up
  trap 'status=$? command=$BASH_COMMAND; podman_stop; finish "$status" "$command"' EXIT
  RUNTIME=$2
  podman_start
  run_with() { podman run --network none -v "$T/tree:/vrdma:ro" "$@"; }
  forget() { podman rm -f -t 0 "$1" >/dev/null 2>&1; }
  version="podman $(podman version -f '{{.Client.Version}}'), $("$RUNTIME" --version | head -1)"
else
  docker_place
  docker_start --bridge none
  run_with() { docker_ run --network none -v "$T/tree:/vrdma:ro" "$@"; }
  forget() { docker_ rm -f "$1" >/dev/null 2>&1; }
  version="Docker $(docker_ version -f '{{.Server.Version}}'), $(runc --version | head -1)"
fi
mkdir -p "$T/tree/lib"
cp -r "$BUILD/bin" "$BUILD/sbin" "$T/tree/"
cp -r "$T/lib" "$T/tree/lib/vrdma"
cp "$BUILD"/lib/vrdma/vrdma-{bad-wire,pingpong} "$T/tree/lib/vrdma/"
chmod -R a+rX "$T/tree"
# The libraries of this host, which must be of the same release as the image.
with_libraries() {
  local library
  ldd "$T/tree/bin/vrdmactl" "$T/tree/bin/vrdma-sandbox" "$T/tree/sbin/vrdmad" "$T/tree/sbin/vrdmad-helper" "$T/tree/lib/vrdma/vrdma-bad-wire" |
    awk '$2 == "=>" { print $3 }' | sort -u |
    while read -r library; do [[ -e ./usr/lib/x86_64-linux-gnu/${library##*/} ]] || cp -L "$library" ./usr/lib/x86_64-linux-gnu/; done
  ldconfig -r .
}
make_image sandbox bookworm with_libraries
image=localhost/sandbox
say "$version"
# there STATUS OPTION... -- WORD...: what vrdma-sandbox prints there, and its status. It is ended after a minute.
there() {
  local wanted=$1 status=0 options=()
  shift
  while [[ $1 != -- ]]; do options+=("$1"); shift; done
  run_with --name box "${options[@]}" "$image" timeout -k 5 60 /vrdma/bin/vrdma-sandbox "${@:2}" >"$T/box.log" 2>&1 || status=$?
  forget box || true
  [[ $status -eq $wanted ]] || { cat "$T/box.log"; fail "${options[*]} -- ${*:2}: status $status, not $wanted"; }
}
says() { grep -qF -- "$1" "$T/box.log" || { cat "$T/box.log"; fail "it does not say '$1'"; }; }
pair=(--pair --two-tenants -- ibv_rc_pingpong -g 1 -n 200 -- ibv_rc_pingpong -g 1 -n 200 10.0.0.1)
works() { # OPTION...: and what doctor finds there
  say "it runs with: $*"
  there 0 "$@" -- "${pair[@]}"
  [[ $(grep -c '200 iters' "$T/box.log") -eq 2 ]] || { cat "$T/box.log"; fail "not both report"; }
  there 0 "$@" -- -- vrdmactl doctor
  says "ok       session"
  ! grep '^problem' "$T/box.log" || fail "doctor finds a problem"
}
refused() { # SENTENCE OPTION...
  say "it is refused with: ${*:2}"
  there 125 "${@:2}" -- -- ibv_devinfo
  says "$1"
  [[ $(grep -c '^vrdma-sandbox: ' "$T/box.log") -eq 1 ]] || { cat "$T/box.log"; fail "not one sentence"; }
  say "  $(grep '^vrdma-sandbox: ' "$T/box.log")"
}
none=(--cap-drop=ALL)
user=(--cap-drop=ALL --user 1000)
free=(--security-opt seccomp=unconfined)
if [[ $engine == podman ]]; then
  works
  refused "it is root without the capability SETFCAP" "${none[@]}"
  works "${none[@]}" --cap-add=SETFCAP
  works "${user[@]}"
  works "${user[@]}" --security-opt no-new-privileges
else
  for options in "" "${none[*]}" "${user[*]}"; do
    # shellcheck disable=SC2086
    refused "a seccomp filter of this process, as of Docker, forbids it" $options
  done
  refused "because it is root without the capability SETFCAP, start the container as another user" "${none[@]}"
fi
works "${free[@]}"
refused "it is root without the capability SETFCAP" "${none[@]}" "${free[@]}"
works "${none[@]}" --cap-add=SETFCAP "${free[@]}"
works "${user[@]}" "${free[@]}"
say "limits of a container"
there 125 "${free[@]}" --ulimit nofile=64:64 --ulimit nproc=32768:32768 -- "${pair[@]}"
says "ulimit -Hn is 64, and vrdmad needs 320 open files for this sandbox: raise the hard limit (of a container: --ulimit nofile=320)"
there 125 "${free[@]}" --pids-limit 20 -- "${pair[@]}"
says "processes and threads can be started here, and a sandbox needs"
