# Installs in three components: `runtime` (shared libraries), `dev` (headers, static libraries,
# what CMake and pkg-config read) and `tools` (which compiler/CMakeLists.txt lists).
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/husk)

install(TARGETS husk husk_ops husk_headers EXPORT husk
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev)
install(TARGETS husk_static husk_static_core husk_static_ops husk_small EXPORT husk_static
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
list(TRANSFORM HUSK_PORTS PREPEND ports/ OUTPUT_VARIABLE port_folders)
foreach(folder runtime ${port_folders})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder}/include/
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
endforeach()

install(FILES ${PROJECT_SOURCE_DIR}/schema/dtypes.def
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/husk/detail COMPONENT dev)

if(TARGET husk_signature)
  install(TARGETS husk_signature EXPORT husk_signature
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev)
  install(TARGETS husk_signature_static EXPORT husk_signature
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/runtime/signature/include/
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
  install(EXPORT husk_signature NAMESPACE husk:: FILE huskSignatureTargets.cmake
    DESTINATION ${package_dir} COMPONENT dev)
endif()

if(TARGET husk_text)
  install(TARGETS husk_text EXPORT husk_text
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/runtime/text/include/
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
  install(EXPORT husk_text NAMESPACE husk:: FILE huskTextTargets.cmake
    DESTINATION ${package_dir} COMPONENT dev)
endif()

# husk.h uses this copy of dlpack.h if the compiler does not find <dlpack/dlpack.h>.
install(FILES ${HUSK_DLPACK_INCLUDE}/dlpack/dlpack.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/husk COMPONENT dev)
file(WRITE ${PROJECT_BINARY_DIR}/THIRD_PARTY [[
include/husk/dlpack.h is dlpack/dlpack.h of DLPack (https://github.com/dmlc/dlpack),
Copyright (c) 2017 by Contributors, Apache License 2.0.
The libraries contain code of FlatBuffers (https://github.com/google/flatbuffers),
Copyright Google Inc., Apache License 2.0.
]])
install(FILES ${PROJECT_BINARY_DIR}/THIRD_PARTY DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT dev)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime
  OPTIONAL)

install(EXPORT husk NAMESPACE husk:: FILE huskTargets.cmake DESTINATION ${package_dir}
  COMPONENT dev)
install(EXPORT husk_static NAMESPACE husk:: FILE huskStaticTargets.cmake
  DESTINATION ${package_dir} COMPONENT dev)
configure_file(${CMAKE_CURRENT_LIST_DIR}/huskConfig.cmake.in
  ${PROJECT_BINARY_DIR}/huskConfig.cmake @ONLY)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/huskConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)   # version 0.x may change its interface
install(
  FILES ${PROJECT_BINARY_DIR}/huskConfig.cmake ${PROJECT_BINARY_DIR}/huskConfigVersion.cmake
  DESTINATION ${package_dir} COMPONENT dev)

# The paths of husk.pc are relative to the file, so that the installation can be moved.
set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
set(HUSK_PC_PRIVATE -pthread -l${CMAKE_DL_LIBS} -lm)
if(HUSK_MIMALLOC)
  list(PREPEND HUSK_PC_PRIVATE -lmimalloc)
endif()
list(JOIN HUSK_PC_PRIVATE " " HUSK_PC_PRIVATE)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR
  BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${pc_dir} OUTPUT_VARIABLE HUSK_PC_LIBDIR)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_INCLUDEDIR
  BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${pc_dir} OUTPUT_VARIABLE HUSK_PC_INCLUDEDIR)
configure_file(${CMAKE_CURRENT_LIST_DIR}/husk.pc.in ${PROJECT_BINARY_DIR}/husk.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/husk.pc DESTINATION ${pc_dir} COMPONENT dev)
