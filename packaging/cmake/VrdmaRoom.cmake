# vrdma_room(core_base SOURCES a.cc b.cc LINK core_verbs ...): one static library a room, named
# vrdma_<room>. Headers are included from the root: "core/base/fd.h".
set(VRDMA_WARNINGS -Wall -Wextra -Wconversion -Wshadow)

function(vrdma_target target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:${VRDMA_WARNINGS}>)
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR})
endfunction()

function(vrdma_room room)
  cmake_parse_arguments(ROOM "" "" "SOURCES;LINK" ${ARGN})
  set(target vrdma_${room})
  if(ROOM_SOURCES)
    add_library(${target} STATIC ${ROOM_SOURCES})
    vrdma_target(${target})
    target_link_libraries(${target} PUBLIC ${ROOM_LINK})
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE ${CMAKE_SOURCE_DIR})
    target_link_libraries(${target} INTERFACE ${ROOM_LINK})
  endif()
endfunction()
