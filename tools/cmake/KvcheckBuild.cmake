# Options, language level, warnings, sanitizers and floating-point flags, as INTERFACE targets which
# every room links.

option(KVCHECK_BUILD_TESTS "Build the tests" ON)
option(KVCHECK_BUILD_BENCH "Build the benchmarks" ON)
option(KVCHECK_BUILD_FUZZERS "Build the libFuzzer targets (needs clang)" OFF)
option(KVCHECK_BUILD_PYTHON "Build the Python package (needs nanobind; pip install . sets it)" OFF)
option(KVCHECK_WERROR "Treat warnings as errors (set by the presets)" OFF)
set(KVCHECK_UNITY OFF CACHE STRING "Compile several files of a room as one: OFF, ON (where a room asks for it) or ALL")
set(KVCHECK_TEST_OPTIONS "" CACHE STRING "Options of the compiler for tests, after all others")
set(KVCHECK_SIMD_TARGETS ALL CACHE STRING "Instruction sets of the kernels: ALL, or NATIVE (the baseline and this machine's best)")
set(KVCHECK_SANITIZE "" CACHE STRING "Comma separated -fsanitize= list, e.g. address,undefined")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

add_library(kvcheck_warnings INTERFACE)
# g++ 12 reports std::string's own memcpy (GCC bug 105651) under -Wrestrict.
target_compile_options(kvcheck_warnings INTERFACE -Wall -Wextra -Wconversion
                       $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
                       $<$<BOOL:${KVCHECK_WERROR}>:-Werror>)

# Contraction changes results (g++ contracts by default); see tests/project/contraction_test.cc.
add_library(kvcheck_floating_point INTERFACE)
target_compile_options(kvcheck_floating_point INTERFACE -ffp-contract=off)
# For users of the installed package, whose own language level may be lower.
target_compile_features(kvcheck_floating_point INTERFACE cxx_std_20)

add_library(kvcheck_sanitizers INTERFACE)
if(KVCHECK_SANITIZE)
  target_compile_options(kvcheck_sanitizers INTERFACE -fsanitize=${KVCHECK_SANITIZE}
                         -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if(KVCHECK_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # AddressSanitizer reports what these would, and they take a tenth of the compile time.
    target_compile_options(kvcheck_sanitizers INTERFACE -fno-sanitize=null,object-size)
  endif()
  target_link_options(kvcheck_sanitizers INTERFACE -fsanitize=${KVCHECK_SANITIZE})
endif()
if(KVCHECK_BUILD_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "KVCHECK_BUILD_FUZZERS needs clang, which has libFuzzer: "
                        "use the preset fuzz")
  endif()
  # The search is guided by what the code under it does, so every room reports its branches.
  target_compile_options(kvcheck_sanitizers INTERFACE -fsanitize=fuzzer-no-link)
endif()
