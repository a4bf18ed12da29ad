# A room is one folder and one library. Its headers are visible only to targets that link it: every
# room has an include root of its own, build/include_roots/<room>/, which holds nothing but a link
# to the folder, so that an include the table forbids does not compile.
#
# kvcheck_room(NAME reference/spec SOURCES a.cc ... LINK kvcheck_x ... PRIVATE_LINK boost ...)
# makes the target kvcheck_reference_spec.
#
# UNITY, of rooms and of tests: where KVCHECK_UNITY is on, several files are compiled as one, which
# pays where every file instantiates the same large templates (options, JSON, GoogleTest). Names in
# their unnamed namespaces must then differ from each other. Where it is ALL, so are those of every
# room, for builds that nobody edits in. ALONE: files of a room with names that others have, too.
function(kvcheck_room)
  cmake_parse_arguments(ROOM "UNITY" "NAME" "SOURCES;ALONE;LINK;PRIVATE_LINK" ${ARGN})
  string(REPLACE "/" "_" target "kvcheck_${ROOM_NAME}")
  set(root "${CMAKE_BINARY_DIR}/include_roots/${ROOM_NAME}")
  get_filename_component(parent "${root}/${ROOM_NAME}" DIRECTORY)
  file(MAKE_DIRECTORY "${parent}")
  file(CREATE_LINK "${CMAKE_SOURCE_DIR}/${ROOM_NAME}" "${root}/${ROOM_NAME}" SYMBOLIC)
  if(ROOM_SOURCES)
    add_library(${target} STATIC ${ROOM_SOURCES})
    target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${root}>)
    target_link_libraries(${target} PUBLIC kvcheck_floating_point kvcheck_sanitizers ${ROOM_LINK}
                          PRIVATE $<BUILD_INTERFACE:kvcheck_warnings> ${ROOM_PRIVATE_LINK})
    # The same objects go into programs and into the Python extension. No other library replaces a
    # function of a room, so that calls inside of it cost what they cost in a program.
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_compile_options(${target} PRIVATE -fno-semantic-interposition)
    # Rooms that read options and write text instantiate the most templates, and wait for the others
    # when they run: optimized no further, they compile in two thirds of the time. Kernels are
    # written in vectors already, and -O3 takes half as long again as -O2 over them.
    set(of_text FALSE)
    if(ROOM_NAME MATCHES "^(golden$|tools/)" AND NOT ROOM_NAME STREQUAL "tools/agree")
      set(of_text TRUE)
      target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
    elseif(ROOM_NAME MATCHES "^optimized/attention$")
      target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O2>)
    endif()
    if(KVCHECK_UNITY AND (ROOM_UNITY OR KVCHECK_UNITY STREQUAL "ALL"))
      # Rooms of text read the largest headers. Files of faults have names in common, six apart.
      set(batch 6)
      if(of_text AND NOT ROOM_NAME STREQUAL "tools/faults")
        set(batch 12)
      endif()
      set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${batch})
      foreach(source IN LISTS ROOM_SOURCES)
        # A file that Highway compiles once for each target, or whose macros end with it.
        file(STRINGS "${source}" apart REGEX "HWY_TARGET_INCLUDE|^#(define|undef) " LIMIT_COUNT 1)
        if(apart OR source IN_LIST ROOM_ALONE)
          set_source_files_properties("${source}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
        endif()
      endforeach()
    endif()
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE $<BUILD_INTERFACE:${root}>)
    target_link_libraries(${target} INTERFACE kvcheck_floating_point ${ROOM_LINK})
  endif()
  if(ROOM_NAME MATCHES "^(reference/|golden$|optimized/|tools/(process|report|faults|prefix_disk|corridor)$)")
    kvcheck_install_room(${target} "${ROOM_NAME}")
  endif()
endfunction()

# kvcheck_test(NAME spec_test SOURCES a_test.cc ... LINK kvcheck_x ... [LABELS fast] [BYTES])
# One GoogleTest executable; every TEST is a ctest entry. LABELS defaults to fast; a test of more
# than a few seconds is labelled slow, and stays out of the sanitizer runs, or exhaustive, and runs
# under tools/test.sh --all alone. BYTES: of code that reads bytes of unknown origin or handles
# memory by hand; fast, labelled bytes, and built by the target bytes_tests, which is what the short
# run has AddressSanitizer for. Tests are compiled with KVCHECK_TEST_OPTIONS, because most of their
# code runs once; OPTIMIZED: not this one, which computes.
# Where KVCHECK_UNITY is on, all others share one precompiled header: reading GoogleTest takes a
# third of their time.
function(kvcheck_test_headers)
  file(WRITE "${CMAKE_BINARY_DIR}/test_headers.cc" "")
  add_library(kvcheck_test_headers OBJECT "${CMAKE_BINARY_DIR}/test_headers.cc")
  target_link_libraries(kvcheck_test_headers PRIVATE kvcheck_warnings kvcheck_floating_point
                        kvcheck_sanitizers GTest::gtest_main)
  target_compile_definitions(kvcheck_test_headers PRIVATE KVCHECK_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_compile_options(kvcheck_test_headers PRIVATE ${KVCHECK_TEST_OPTIONS})
  target_precompile_headers(kvcheck_test_headers PRIVATE
    <gmock/gmock.h> <gtest/gtest.h>
    <filesystem> <fstream> <functional> <map> <memory> <optional> <string> <variant> <vector>)
endfunction()

function(kvcheck_test)
  cmake_parse_arguments(T "UNITY;OPTIMIZED;BYTES" "NAME;TIMEOUT" "SOURCES;LINK;LABELS" ${ARGN})
  if(T_BYTES)
    set(T_LABELS bytes)
  elseif(NOT T_LABELS)
    set(T_LABELS fast)
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 600)
  endif()
  add_executable(${T_NAME} ${T_SOURCES})
  target_link_libraries(${T_NAME} PRIVATE kvcheck_warnings kvcheck_floating_point
                        kvcheck_sanitizers ${T_LINK} GTest::gtest_main)
  target_compile_definitions(${T_NAME} PRIVATE KVCHECK_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  if(NOT T_OPTIMIZED)
    target_compile_options(${T_NAME} PRIVATE ${KVCHECK_TEST_OPTIONS})
    if(KVCHECK_UNITY)
      if(NOT TARGET kvcheck_test_headers)
        kvcheck_test_headers()
      endif()
      target_precompile_headers(${T_NAME} REUSE_FROM kvcheck_test_headers)
      # g++ 12 takes a precompiled std::string for no system header, and reports its memcpy
      # (GCC bug 105651).
      target_compile_options(${T_NAME} PRIVATE "$<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds;-Wno-stringop-overflow>")
    endif()
  endif()
  if(T_UNITY AND KVCHECK_UNITY)
    set_target_properties(${T_NAME} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
  endif()
  if(T_BYTES)
    if(NOT TARGET bytes_tests)
      add_custom_target(bytes_tests)
    endif()
    add_dependencies(bytes_tests ${T_NAME})
  endif()
  include(GoogleTest)
  gtest_discover_tests(${T_NAME} DISCOVERY_TIMEOUT 600
                       PROPERTIES LABELS "${T_LABELS}" TIMEOUT ${T_TIMEOUT})
endfunction()
