# The drop-in libraries against those that they replace, of each release of Debian. To bring a list up
# to date, or for a new release: exported_symbols.py --read, with a first line like the others'.
if(TARGET vrdma_libibverbs)
  set(sanitized "")
  if(VRDMA_SANITIZE)
    set(sanitized --sanitized)
  else()
    vrdma_lint(glibc COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/glibc.py
      $<TARGET_FILE:vrdma_libibverbs> $<TARGET_FILE:vrdma_librdmacm>
      $<TARGET_FILE:vrdma_librspreload>)
  endif()
  foreach(library libibverbs librdmacm)
    file(GLOB facts CONFIGURE_DEPENDS exports/${library}-*.txt)
    vrdma_lint(exported_symbols_${library} COMMAND Python3::Interpreter
      ${CMAKE_CURRENT_SOURCE_DIR}/exported_symbols.py $<TARGET_FILE:vrdma_${library}> ${facts}
      ${sanitized})
  endforeach()
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
