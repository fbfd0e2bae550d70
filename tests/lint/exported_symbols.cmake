# libvrdma.so.1 against its header.
if(TARGET vrdma)
  vrdma_lint(libvrdma_symbols COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/libvrdma.py
    $<TARGET_FILE:vrdma> ${CMAKE_SOURCE_DIR}/api/vrdma/vrdma.h)
endif()
# The drop-in library against the one it stands for. Both need the library built.
if(TARGET vrdma_libibverbs)
  set(sanitized "")
  if(VRDMA_SANITIZE)
    set(sanitized --sanitized)
  endif()
  vrdma_lint(exported_symbols COMMAND Python3::Interpreter
    ${CMAKE_CURRENT_SOURCE_DIR}/exported_symbols.py $<TARGET_FILE:vrdma_libibverbs>
    ${CMAKE_CURRENT_SOURCE_DIR}/libibverbs-44-exports.txt ${sanitized})
  vrdma_lint(exported_symbols_rdmacm COMMAND Python3::Interpreter
    ${CMAKE_CURRENT_SOURCE_DIR}/exported_symbols.py $<TARGET_FILE:vrdma_librdmacm>
    ${CMAKE_CURRENT_SOURCE_DIR}/librdmacm-44-exports.txt ${sanitized})
  vrdma_lint(kernel_calls COMMAND Python3::Interpreter
    ${CMAKE_CURRENT_SOURCE_DIR}/kernel_calls.py
    ${CMAKE_SOURCE_DIR}/client/rspreload/librspreload.map
    $<TARGET_FILE:vrdma_libibverbs> $<TARGET_FILE:vrdma_librdmacm>)
  # TSan cannot come into a running program, nor be preloaded into one that it did not compile.
  if(NOT VRDMA_SANITIZE STREQUAL "thread")
    vrdma_lint(drop_in_load COMMAND Python3::Interpreter
      ${CMAKE_CURRENT_SOURCE_DIR}/drop_in_load.py $<TARGET_FILE:vrdma_libibverbs>)
  endif()
endif()
