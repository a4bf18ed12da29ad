# Installation: the rooms under kvcheck::kvcheck with their headers, and a package that finds them
# (find_package(kvcheck)). tests/project/install_test.cmake proves it.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(KVCHECK_INSTALL_INCLUDE_DIR "${CMAKE_INSTALL_INCLUDEDIR}/kvcheck")
set(KVCHECK_INSTALL_CMAKE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/kvcheck")

# Adds a room's target and headers to the installation.
function(kvcheck_install_room target room)
  string(REPLACE "kvcheck_" "" export_name "${target}")
  set_target_properties(${target} PROPERTIES EXPORT_NAME "${export_name}")
  target_include_directories(${target}
                             INTERFACE $<INSTALL_INTERFACE:${KVCHECK_INSTALL_INCLUDE_DIR}>)
  install(TARGETS ${target} EXPORT kvcheckTargets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  install(DIRECTORY "${CMAKE_SOURCE_DIR}/${room}/"
          DESTINATION "${KVCHECK_INSTALL_INCLUDE_DIR}/${room}" FILES_MATCHING PATTERN "*.h")
endfunction()

# Adds the library that others link, kvcheck::kvcheck, and its header <kvcheck/NAME>.
function(kvcheck_install_library target header)
  set_target_properties(${target} PROPERTIES EXPORT_NAME kvcheck)
  target_include_directories(${target} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  install(TARGETS ${target} EXPORT kvcheckTargets)
  install(FILES "${CMAKE_SOURCE_DIR}/${header}" DESTINATION "${KVCHECK_INSTALL_INCLUDE_DIR}")
endfunction()

# Writes the package files; called once, after the rooms.
function(kvcheck_install_package)
  foreach(target kvcheck_floating_point kvcheck_sanitizers)
    string(REPLACE "kvcheck_" "" export_name "${target}")
    set_target_properties(${target} PROPERTIES EXPORT_NAME "${export_name}")
  endforeach()
  install(TARGETS kvcheck_floating_point kvcheck_sanitizers EXPORT kvcheckTargets)
  install(EXPORT kvcheckTargets NAMESPACE kvcheck:: DESTINATION "${KVCHECK_INSTALL_CMAKE_DIR}")
  configure_package_config_file("${CMAKE_SOURCE_DIR}/tools/cmake/kvcheckConfig.cmake.in"
                                "${CMAKE_BINARY_DIR}/kvcheckConfig.cmake"
                                INSTALL_DESTINATION "${KVCHECK_INSTALL_CMAKE_DIR}")
  write_basic_package_version_file("${CMAKE_BINARY_DIR}/kvcheckConfigVersion.cmake"
                                   COMPATIBILITY SameMinorVersion)
  install(FILES "${CMAKE_BINARY_DIR}/kvcheckConfig.cmake"
                "${CMAKE_BINARY_DIR}/kvcheckConfigVersion.cmake"
          DESTINATION "${KVCHECK_INSTALL_CMAKE_DIR}")
endfunction()
