#!/bin/bash
# load.sh: in a root, with our libraries: which programs and modules that need libibverbs or librdmacm,
# or a library that does, can be loaded? Prints each that cannot, and "LOADED OF ALL".
set -euo pipefail
wanted='libibverbs\.so\.1|librdmacm\.so\.1|libmlx[45]\.so\.1|libefa\.so\.1|libmana\.so\.1|libhns\.so\.1|libfabric\.so\.1|libucp\.so\.0|libuct'
all=0 loaded=0
while IFS= read -r file; do
  # Those that only name the library in some text of theirs do not need it.
  needs=$(ldd "$file" 2>/dev/null || true)
  [[ $needs =~ libibverbs\.so\.1|librdmacm\.so\.1 ]] || continue
  [[ $(basename "$file") != @(libibverbs|librdmacm).so.* ]] || continue
  all=$((all + 1))
  # A module leaves Python's own symbols to Python.
  said=$(ldd -r "$file" 2>&1 | grep -E 'not found|undefined symbol|symbol lookup' |
    grep -Ev 'undefined symbol: _?Py' || true)
  if [[ -z $said ]]; then
    loaded=$((loaded + 1))
  else
    echo "$file: ${said%%$'\n'*}"
  fi
done < <(grep -rlE "$wanted" /usr/bin /usr/sbin /usr/lib 2>/dev/null | sort)
echo "$loaded $all"
