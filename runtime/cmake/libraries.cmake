# The libraries that programs link: husk::husk and husk::ops (shared), husk::static (archives).

husk_ports_table(husk_ports ${HUSK_PORTS})
husk_library(husk husk_core husk_ports ${HUSK_PORT_TARGETS})
# libhusk_ops also has husk_weights_open, which is no part of libhusk and its budget.
husk_library(husk_ops husk_host_ops husk_weights)
foreach(library husk husk_ops)
  set_target_properties(${library} PROPERTIES
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
endforeach()
# husk_ops_add_all and husk_weights_open call libhusk. The two libraries lie in one folder.
target_link_libraries(husk_ops PUBLIC husk)
set_target_properties(husk_ops PROPERTIES EXPORT_NAME ops INSTALL_RPATH $ORIGIN)
add_library(husk::husk ALIAS husk)
add_library(husk::ops ALIAS husk_ops)

# The same objects as static libraries: libhusk.a and libhusk_ops.a, which calls libhusk.a. They
# are C libraries for the linker, since they need no C++ library; so a C project can link them.
function(husk_archive target output_name)
  add_library(${target} STATIC ${PROJECT_SOURCE_DIR}/runtime/library.c)
  foreach(part ${ARGN})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${part}>)
  endforeach()
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${output_name} LINKER_LANGUAGE C)
endfunction()
find_package(Threads REQUIRED)
# libhusk_small.a is the core and the host port alone, without mimalloc in any build: the only
# source that calls mimalloc is compiled again.
add_library(husk_small_memory OBJECT ${PROJECT_SOURCE_DIR}/runtime/src/base/memory.cpp)
husk_strict(husk_small_memory)
target_compile_definitions(husk_small_memory PRIVATE HUSK_MIMALLOC=0)
target_include_directories(husk_small_memory PRIVATE ${PROJECT_SOURCE_DIR}/runtime/src)
target_link_libraries(husk_small_memory PRIVATE husk_headers)
husk_archive(husk_small husk_small husk_small_memory husk_core husk_port_host)
target_sources(husk_small PRIVATE
  $<FILTER:$<TARGET_OBJECTS:husk_model>,EXCLUDE,base/memory[.]cpp>)
target_link_libraries(husk_small PUBLIC husk_headers PRIVATE Threads::Threads ${CMAKE_DL_LIBS} m)
set_target_properties(husk_small PROPERTIES EXPORT_NAME small)
add_library(husk::small ALIAS husk_small)
husk_archive(husk_static_core husk husk_model husk_core husk_ports ${HUSK_PORT_TARGETS})
husk_archive(husk_static_ops husk_ops husk_host_ops husk_weights)
target_link_libraries(husk_static_core PUBLIC husk_headers
  PRIVATE $<$<BOOL:${HUSK_MIMALLOC}>:mimalloc> Threads::Threads ${CMAKE_DL_LIBS} m)
target_link_libraries(husk_static_ops PUBLIC husk_static_core)
add_library(husk_static INTERFACE)
target_link_libraries(husk_static INTERFACE husk_static_ops husk_static_core)
set_target_properties(husk_static PROPERTIES EXPORT_NAME static)
add_library(husk::static ALIAS husk_static)
