# Installs the build into an empty prefix, builds tests/project/consumer against it, and runs it.
# cmake -DBUILD_DIR= -DCONSUMER_DIR= -DWORK_DIR= -DGENERATOR= -DCOMPILER= -P install_test.cmake

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command} gave ${result}:\n${output}")
  endif()
  message(STATUS "${output}")
endfunction()

file(REMOVE_RECURSE "${WORK_DIR}")
run("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${WORK_DIR}/prefix")
# Nothing that was installed may point back into the source or build tree.
file(GLOB_RECURSE installed "${WORK_DIR}/prefix/*.cmake")
foreach(file IN LISTS installed)
  file(READ "${file}" text)
  string(FIND "${text}" "${BUILD_DIR}/include_roots" found)
  if(NOT found EQUAL -1)
    message(FATAL_ERROR "${file} refers to the build tree")
  endif()
endforeach()
run("${CMAKE_COMMAND}" -S "${CONSUMER_DIR}" -B "${WORK_DIR}/build" -G "${GENERATOR}"
    "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix")
run("${CMAKE_COMMAND}" --build "${WORK_DIR}/build")
run("${WORK_DIR}/build/consumer")
# The tool finds its suites where it was installed.
run("${WORK_DIR}/prefix/bin/kvcheck" gate --quiet --fuzz-cases 100)
