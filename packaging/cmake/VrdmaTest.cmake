# What the CMakeLists.txt under tests/ are made of.
include(GoogleTest)

# ASan must be the first library of a process, also of a foreign program (perftest) that only meets
# our code in a shared library: such programs are started with this in LD_PRELOAD.
set(VRDMA_TEST_PRELOAD "")
if(VRDMA_SANITIZE STREQUAL "address")
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libasan.so
                  OUTPUT_VARIABLE VRDMA_TEST_PRELOAD OUTPUT_STRIP_TRAILING_WHITESPACE)
  file(REAL_PATH ${VRDMA_TEST_PRELOAD} VRDMA_TEST_PRELOAD)
endif()

# What the scripts test. ThreadSanitizer is for the daemon alone: the rest is another build's.
# They run the programs of Debian's packages: wrappers of a developer's own, such as pyenv's, take ten times as long.
set(VRDMA_TEST_PATH PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
set(VRDMA_TEST_ENVIRONMENT ${VRDMA_TEST_PATH} VRDMA_BUILD=${CMAKE_BINARY_DIR} VRDMA_TEST_PRELOAD=${VRDMA_TEST_PRELOAD})
if(VRDMA_SANITIZE STREQUAL "thread")
  set(VRDMA_PLAIN_BUILD ${CMAKE_SOURCE_DIR}/build/release CACHE PATH
      "a build without sanitizers, whose programs and libraries are run on the daemon of this one")
  set(VRDMA_TEST_ENVIRONMENT ${VRDMA_TEST_PATH} VRDMA_BUILD=${VRDMA_PLAIN_BUILD}
                             VRDMA_DAEMON=${CMAKE_BINARY_DIR}/sbin/vrdmad)
endif()

# Sanitizers slow programs down, so tests get more time.
if(VRDMA_SANITIZE)
  set(VRDMA_TIMEOUT_FACTOR 3)
else()
  set(VRDMA_TIMEOUT_FACTOR 1)
endif()

# What nearly every unit test includes takes longer to read than the test: it is compiled once, for
# a program that is never linked, of whose flags vrdma_unit_test() has all.
function(vrdma_unit_headers)
  if(CMAKE_CROSSCOMPILING)  # the package of googletest has its sources
    add_subdirectory(/usr/src/googletest ${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
  else()
    find_package(GTest REQUIRED)
  endif()
  file(CONFIGURE OUTPUT unit_headers.cc CONTENT "int main() {}\n")
  add_executable(unit_headers EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/unit_headers.cc)
  vrdma_target(unit_headers)
  target_link_libraries(unit_headers PRIVATE GTest::gmock GTest::gtest_main)
  target_precompile_headers(unit_headers PRIVATE
    <gmock/gmock.h> <gtest/gtest.h> <algorithm> <atomic> <chrono> <functional> <map> <memory>
    <mutex> <optional> <string> <thread> <vector>)
endfunction()

# vrdma_gtests(program prefix labels...): each of its tests is a test of CTest, of the first label; with a
# sanitizer, whose programs are slow to begin, all of them are one, which is known before it is built. It names each test
# when that begins, so that one which is ended for being late has said where it stood.
function(vrdma_gtests program prefix label)
  if(VRDMA_SANITIZE)
    add_test(NAME ${prefix}.all COMMAND ${program})
    set(labels ${label} ${ARGN})
    set_tests_properties(${prefix}.all PROPERTIES LABELS "${labels}" TIMEOUT 300)
  else()
    gtest_discover_tests(${program} TEST_PREFIX "${prefix}." DISCOVERY_TIMEOUT 60
                         PROPERTIES LABELS ${label} TIMEOUT 120)
  endif()
endfunction()

# vrdma_unit_test(core_base [THREADS] SOURCES fd_test.cc ... LINK vrdma_core_base ...): one executable
# a room, <room>_test, with vrdma_gtests(). THREADS: threads or processes meet in it, which is
# ThreadSanitizer's matter.
function(vrdma_unit_test room)
  cmake_parse_arguments(TEST "THREADS" "" "SOURCES;LINK" ${ARGN})
  set(labels unit)
  if(TEST_THREADS)
    list(APPEND labels threads)
  endif()
  add_executable(${room}_test ${TEST_SOURCES})
  vrdma_target(${room}_test)
  target_link_libraries(${room}_test PRIVATE ${TEST_LINK} GTest::gmock GTest::gtest_main)
  if(NOT "${TEST_SOURCES}" MATCHES "\\.c(;|$)")  # where C is compiled too, its headers are asked for
    target_precompile_headers(${room}_test REUSE_FROM unit_headers)
  endif()
  if(TEST_THREADS)
    set_property(GLOBAL APPEND PROPERTY VRDMA_THREADED_TESTS ${room}_test)
  endif()
  vrdma_gtests(${room}_test ${room} ${labels})
endfunction()

# vrdma_script_test(NAME COMMAND script args... [LABEL integration] [TIMEOUT 600] [SPINS] [PROPERTIES ...]): a program that
# exits with 0 (passed), 77 (skipped, having said why) or else.
# SPINS: its programs poll, or it compiles. It has the machine to itself: on processors that others use too, each turn of
# two programs that poll takes a time slice. The others wait more than they work, and run beside each other.
# A test that runs longer than its limit is ended. The limit is thrice the longest of at least ten runs, which
# tests/durations has, and a minute at least; TIMEOUT is the limit of a test that is not in it.
file(STRINGS ${CMAKE_SOURCE_DIR}/tests/durations lines REGEX "^[^#]")
foreach(line ${lines})
  string(REGEX MATCH "^([^ ]+) +([0-9]+)$" line "${line}")
  set(VRDMA_DURATION_${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
endforeach()
set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS tests/durations)
function(vrdma_script_test name)
  cmake_parse_arguments(TEST "SPINS" "LABEL;TIMEOUT" "COMMAND;PROPERTIES" ${ARGN})
  if(NOT DEFINED TEST_LABEL)
    set(TEST_LABEL integration)
  endif()
  set(limit 600)
  if(DEFINED VRDMA_DURATION_${name})
    math(EXPR limit "3 * ${VRDMA_DURATION_${name}}")
    if(limit LESS 60)
      set(limit 60)
    endif()
  elseif(DEFINED TEST_TIMEOUT)
    set(limit ${TEST_TIMEOUT})
  endif()
  math(EXPR limit "${limit} * ${VRDMA_TIMEOUT_FACTOR}")
  add_test(NAME ${name} COMMAND ${TEST_COMMAND})
  set_tests_properties(${name} PROPERTIES
    LABELS ${TEST_LABEL} TIMEOUT ${limit} RUN_SERIAL ${TEST_SPINS} SKIP_RETURN_CODE 77
    ENVIRONMENT "${VRDMA_TEST_ENVIRONMENT}"
    ${TEST_PROPERTIES})
endfunction()
