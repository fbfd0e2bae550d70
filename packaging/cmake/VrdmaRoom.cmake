# vrdma_room(core_base SOURCES a.cc b.cc LINK core_verbs ...): one static library a room, named
# vrdma_<room>. Headers are included from the root: "core/base/fd.h".
set(VRDMA_WARNINGS -Wall -Wextra -Wconversion -Wshadow)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # The first is not in gcc's -Wconversion for C++; the second is what Debian's infiniband/verbs.h does.
  list(APPEND VRDMA_WARNINGS -Wno-sign-conversion -Wno-deprecated-enum-enum-conversion)
endif()

function(vrdma_target target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:${VRDMA_WARNINGS}>)
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR})
endfunction()

# vrdma_archive(LIBRARY archive.a): VRDMA_LIBRARY is what to link instead of PkgConfig::LIBRARY: the
# archive in static programs, which have the property VRDMA_STATIC, and the shared library in others.
# VRDMA_LIBRARY_ARCHIVE is false if there is no archive.
function(vrdma_archive library archive)
  find_library(VRDMA_${library}_ARCHIVE ${archive})
  set(VRDMA_${library} "$<IF:$<BOOL:$<TARGET_PROPERTY:VRDMA_STATIC>>,\
${VRDMA_${library}_ARCHIVE},PkgConfig::${library}>" PARENT_SCOPE)
endfunction()

# vrdma_static(target): makes it a static program. Archives contain functions that look names up by shared
# libraries, of which the linker warns; the daemon's programs do not call them.
include(CheckLinkerFlag)
check_linker_flag(CXX -Wl,--no-warnings VRDMA_LINKER_HAS_NO_WARNINGS)
function(vrdma_static target)
  set_target_properties(${target} PROPERTIES VRDMA_STATIC ON)
  target_link_options(${target} PRIVATE -static-pie $<$<BOOL:${VRDMA_LINKER_HAS_NO_WARNINGS}>:-Wl,--no-warnings>)
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

# vrdma_grpc(target path/of/x.proto...): a library of the code that is generated for proto files, whose
# paths are relative to this folder: #include <path/of/x.pb.h>, and x.grpc.pb.h. Separate, because our warnings
# and sanitizers do not apply to it.
function(vrdma_grpc target)
  find_package(PkgConfig REQUIRED)
  find_package(Threads REQUIRED)
  find_program(PROTOC protoc REQUIRED)
  find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)
  if(NOT TARGET PkgConfig::GRPC)
    # Without TLS: the sockets are unix ones, and programs start faster without libssl.
    pkg_check_modules(GRPC REQUIRED IMPORTED_TARGET GLOBAL grpc++_unsecure)
    pkg_check_modules(PROTOBUF REQUIRED IMPORTED_TARGET GLOBAL protobuf-lite)
  endif()
  set(out ${CMAKE_CURRENT_BINARY_DIR}/generated)
  file(MAKE_DIRECTORY ${out})
  set(sources)
  foreach(path ${ARGN})
    string(REGEX REPLACE "[.]proto$" "" stem ${out}/${path})
    add_custom_command(
      OUTPUT ${stem}.pb.cc ${stem}.pb.h ${stem}.grpc.pb.cc ${stem}.grpc.pb.h
      COMMAND ${PROTOC} --proto_path=${CMAKE_CURRENT_SOURCE_DIR} --cpp_out=${out} --grpc_out=${out}
              --plugin=protoc-gen-grpc=${GRPC_CPP_PLUGIN} ${CMAKE_CURRENT_SOURCE_DIR}/${path}
      DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${path}
      VERBATIM)
    list(APPEND sources ${stem}.pb.cc ${stem}.grpc.pb.cc)
  endforeach()
  add_library(${target} STATIC ${sources})
  # Generated files of one target may have the same local names.
  set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
  if(VRDMA_SANITIZE)
    target_compile_options(${target} PRIVATE -fno-sanitize=all -O0)
  endif()
  target_include_directories(${target} SYSTEM PUBLIC ${out})
  target_link_libraries(${target} PUBLIC PkgConfig::GRPC PkgConfig::PROTOBUF Threads::Threads)
endfunction()
