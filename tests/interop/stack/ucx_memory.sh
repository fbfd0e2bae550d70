#!/bin/bash
# ucx_memory.sh direct|mediated: allocators under UCX's registration cache. UCX keeps buffers registered that the program
# has freed, moved or given back, so whatever an allocator does to them it does to registered memory (memory.c). Each
# allocator is preloaded; UCX learns of their calls by patches of code, or not at all, without its cache. (With patches of
# tables, UCX_MEM_MMAP_HOOK_MODE=reloc, UCX 1.13 waits for itself over TCP too: ucm_dlmalloc -> sbrk -> dlsym -> malloc.)
. "$(dirname "$0")/lib.sh"
mode=$1
setup
command -v ucx_info >/dev/null && [[ -e /usr/include/ucp/api/ucp.h ]] || skip "libucx-dev is not installed"
start_daemon
two_vdevices "$mode"
here=$(dirname "$0") root=$(dirname "$0")/../../..
gcc -O2 -Wall -Werror -I "$root" -o "$T/memory" "$here/memory.c" "$here/memory_ucx.c" -lucp -lucs

seconds=$((${VRDMA_RACE_SECONDS:-8} / 4)) seed=${VRDMA_SEED:-$RANDOM$RANDOM}
libraries=/usr/lib/$(uname -m)-linux-gnu
say "VRDMA_SEED=$seed"
for allocator in "" libjemalloc.so.2 libtcmalloc_minimal.so.4 libmimalloc.so.2.0; do
  [[ -z $allocator || -e $libraries/$allocator ]] || { say "$allocator is not installed"; continue; }
  for cache in bistro none; do
    settings=(UCX_TLS=rc_verbs,ud_verbs,self UCX_LOG_LEVEL=error UCX_MEM_MMAP_HOOK_MODE=$cache)
    [[ -z $allocator ]] || settings+=(LD_PRELOAD="$libraries/$allocator")
    LIMIT=$((seconds + 60)) exec_in va env "${settings[@]}" "$T/memory" "$seed" "$seconds" >"$T/run.log" 2>&1 ||
      fail "${allocator:-glibc}, hooks $cache: $(tail -5 "$T/run.log")"
    say "${allocator:-glibc}, hooks $cache: $(<"$T/run.log")"
  done
done
