# Libraries, headers, and how CMake (find_package(husk)) and pkg-config find them.
include(CMakePackageConfigHelpers)
file(RELATIVE_PATH HUSK_CONFIG_TO_PREFIX /p/${CMAKE_INSTALL_LIBDIR}/cmake/husk /p)
install(TARGETS husk husk_ops LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(folder runtime ports/host ports/cuda)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endforeach()

file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/husk.pc @ONLY CONTENT [[
prefix=@CMAKE_INSTALL_PREFIX@
libdir=${prefix}/@CMAKE_INSTALL_LIBDIR@
includedir=${prefix}/@CMAKE_INSTALL_INCLUDEDIR@

Name: husk
Description: Runs PyTorch models from Husk artifacts
Version: @PROJECT_VERSION@
Cflags: -I${includedir}
Libs: -L${libdir} -lhusk -lhusk_ops
]])
install(FILES ${CMAKE_BINARY_DIR}/husk.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/huskConfig.cmake @ONLY CONTENT [[
get_filename_component(prefix "${CMAKE_CURRENT_LIST_DIR}/@HUSK_CONFIG_TO_PREFIX@" ABSOLUTE)
foreach(name husk husk_ops)
  if(NOT TARGET husk::${name})
    add_library(husk::${name} SHARED IMPORTED)
    set_target_properties(husk::${name} PROPERTIES
      IMPORTED_LOCATION ${prefix}/@CMAKE_INSTALL_LIBDIR@/lib${name}.so
      INTERFACE_INCLUDE_DIRECTORIES ${prefix}/@CMAKE_INSTALL_INCLUDEDIR@)
  endif()
endforeach()
]])
write_basic_package_version_file(${CMAKE_BINARY_DIR}/huskConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_BINARY_DIR}/huskConfig.cmake ${CMAKE_BINARY_DIR}/huskConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/husk)
