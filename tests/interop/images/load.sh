#!/bin/bash
# load.sh: in a root, with our libraries: which programs and modules that need libibverbs or librdmacm,
# or a library that does, can be loaded? Prints each that lacks something that it does not lack with
# the libraries of the release itself, and "LOADED ALL". (A plugin leaves some symbols to its host.)
set -euo pipefail
wanted='libibverbs\.so\.1|librdmacm\.so\.1|libmlx[45]\.so\.1|libefa\.so\.1|libmana\.so\.1|libhns\.so\.1|libfabric\.so\.1|libucp\.so\.0|libuct'
all=0 loaded=0
lacks() {
  ldd -r "$1" 2>&1 | grep -E 'not found|undefined symbol|symbol lookup' | sed 's/[[:space:]]*(.*//' |
    sort -u || true
}
while IFS= read -r file; do
  # Those that only name the library in a text do not need it.
  needs=$(ldd "$file" 2>/dev/null || true)
  [[ $needs =~ libibverbs\.so\.1|librdmacm\.so\.1 ]] || continue
  [[ $(basename "$file") != @(libibverbs|librdmacm).so.* ]] || continue
  all=$((all + 1))
  said=$(comm -13 <(LD_LIBRARY_PATH='' lacks "$file") <(lacks "$file"))
  if [[ -z $said ]]; then
    loaded=$((loaded + 1))
  else
    echo "$file: ${said%%$'\n'*}"
  fi
done < <(grep -rlE "$wanted" /usr/bin /usr/sbin /usr/lib 2>/dev/null | sort)
echo "$loaded $all"
