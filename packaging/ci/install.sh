#!/bin/sh
# Installs vrdma for a CI job: its archive, which needs no package of the distribution.
#
#   sh install.sh RELEASE [DIR]     # RELEASE: the URL or the directory of a release; DIR: /opt
#
# It checks the archive by the release's SHA256SUMS, unpacks it as DIR/vrdma, and prints DIR/vrdma/bin, which belongs into
# PATH (on GitHub it puts it there). It needs tar, xz and sha256sum, and curl for a URL. As root, or with sudo, it also lifts
# AppArmor's restriction of user namespaces (Ubuntu 23.10 and later), which vrdma-sandbox needs.
set -eu
fail() { echo "install.sh: $*" >&2; exit 1; }
case ${1:-} in
  -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit ;;
esac
release=${1:-} dir=${2:-/opt}
[ -n "$release" ] && [ $# -le 2 ] || fail "name the URL or the directory of a release, and perhaps where to install it"
[ "$(uname -m)" = x86_64 ] || fail "this machine is $(uname -m); vrdma runs on x86_64 so far"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fetch() {
  case $release in
    http://* | https://*) curl -fsSL -o "$work/$1" "$release/$1" ;;
    *) cp "$release/$1" "$work/" ;;
  esac || fail "cannot get $1 from $release"
}
fetch SHA256SUMS
archive=$(sed -n 's/^[0-9a-f]* [ *]\(vrdma-[0-9.]*-x86_64\.tar\.xz\)$/\1/p' "$work/SHA256SUMS")
[ -n "$archive" ] || fail "SHA256SUMS in $release names no archive"
fetch "$archive"
(cd "$work" && grep " [ *]\{0,1\}$archive\$" SHA256SUMS | sha256sum -c --quiet -) ||
  fail "$archive is not what SHA256SUMS says"
as_root=
[ "$(id -u)" = 0 ] || ! command -v sudo >/dev/null || as_root=sudo
$as_root mkdir -p "$dir" 2>/dev/null && $as_root test -w "$dir" || fail "cannot write $dir: name another directory"
dir=$(cd "$dir" && pwd)
$as_root tar -C "$dir" -xJf "$work/$archive"
restricted=/proc/sys/kernel/apparmor_restrict_unprivileged_userns
if [ -e $restricted ] && [ "$(cat $restricted)" = 1 ]; then
  $as_root sh -c "echo 0 >$restricted" 2>/dev/null ||
    echo "install.sh: note: $restricted is 1, so vrdma-sandbox needs root" >&2
fi
[ -z "${GITHUB_PATH:-}" ] || echo "$dir/vrdma/bin" >>"$GITHUB_PATH"
echo "$dir/vrdma/bin"
