# Runs between the installation for the packages and their making: compresses manual pages, and adds the copyright
# (Debian Policy 12.1, 12.5).
file(GLOB packages ${CPACK_TEMPORARY_DIRECTORY}/*)
foreach(package ${packages})
  file(GLOB_RECURSE pages ${package}/usr/share/man/*.[1-9])
  if(pages)
    execute_process(COMMAND gzip -9n ${pages} COMMAND_ERROR_IS_FATAL ANY)
  endif()
  cmake_path(GET package FILENAME name)
  file(COPY_FILE ${CPACK_VRDMA_COPYRIGHT} ${package}/copyright.new)
  file(MAKE_DIRECTORY ${package}/usr/share/doc/${name})
  file(RENAME ${package}/copyright.new ${package}/usr/share/doc/${name}/copyright)
endforeach()
