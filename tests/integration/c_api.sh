#!/bin/bash
# c_api.sh: builds the example of the C API against the installed files, as a user would, and runs
# it.
#
#     netns a
#   +------------------------------+
#   | vdevices (the example)       |
#   | web0 comes and goes -- eth0  |
#   +------------------------------+
. "$(dirname "$0")/lib.sh"
setup
source=$(dirname "$0")/../../docs/examples/vdevices.c
for component in libvrdma1 libvrdma-dev; do
  cmake --install "$BUILD" --prefix "$T/usr" --component "$component" >"$T/install.log" ||
    fail "$component cannot be installed"
done

say "installed: library, header, pkg-config, manual pages"
mapfile -t pc < <(find "$T/usr" -name vrdma.pc)
[[ ${#pc[@]} -eq 1 ]] || fail "there is no vrdma.pc"
flags=$(PKG_CONFIG_PATH=$(dirname "${pc[0]}") pkg-config --cflags --libs vrdma)
library=$(PKG_CONFIG_PATH=$(dirname "${pc[0]}") pkg-config --variable=libdir vrdma)
for function in $(sed -n 's/^ *\(ibv_[a-z_]*\|vrdma_[a-z_]*\);$/\1/p' "$(dirname "$source")/../../api/libvrdma.map"); do
  [[ -s $T/usr/share/man/man3/$function.3 ]] || fail "$function has no manual page"
done
sanitizer=()
[[ -z ${VRDMA_TEST_PRELOAD:-} ]] || sanitizer=(-fsanitize=address,undefined)
# shellcheck disable=SC2086  # words
gcc -std=c11 -Wall -Wextra -pedantic -Werror "${sanitizer[@]}" -o "$T/vdevices" "$source" $flags -libverbs

start_daemon
netns_add a
loose a eth0
ip_in a address add 10.7.0.1/24 dev eth0

say "it runs, and says what there is"
ENVIRONMENT=(PATH=/usr/sbin:/usr/bin:/sbin:/bin LD_LIBRARY_PATH="$T/lib:$library" VRDMA_RUN_DIR="$R"
             ASAN_OPTIONS=detect_leaks=0)
on a root "$T/vdevices" eth0 web0 >"$T/vdevices.log" 2>&1 || fail "the example fails"
for line in "event: web0 added: created" "event: web0 changed: quota changed" \
            "vdevice: web0 on eth0, tenant vdev/[0-9]*, .*port ACTIVE" "gid 1: ::ffff:10.7.0.1" \
            "queue pairs: 0 of 16" "verbs: web0 is virtual" "event: web0 removed: deleted"; do
  grep -qx "$line" "$T/vdevices.log" || { cat "$T/vdevices.log"; fail "it does not say '$line'"; }
done
[[ -z $(ctl vdev list | sed 1d) ]] || fail "web0 is left"

say "what fails is said in one sentence"
if on a root "$T/vdevices" eth9 web0 >"$T/wrong.log" 2>&1; then fail "there is no eth9"; fi
grep -qx "vdevices: create: .*eth9.*" "$T/wrong.log" || fail "it does not name eth9"
if on a nobody "$T/vdevices" eth0 web0 >"$T/nobody.log" 2>&1; then fail "nobody may create"; fi
grep -q "vdevices: watch: root is needed" "$T/nobody.log" || fail "it does not say that root is needed"
