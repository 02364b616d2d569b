# The ports, which libhusk.so and libhusk.a consist of. A port NAME is the folder ports/NAME, the
# target husk_port_NAME and the function husk_port_NAME, which returns its table.
set(HUSK_PORTS host cuda)
list(TRANSFORM HUSK_PORTS PREPEND husk_port_ OUTPUT_VARIABLE HUSK_PORT_TARGETS)

# Sets a variable to whether all ports are built.
function(husk_has_ports variable)
  set(${variable} ON PARENT_SCOPE)
  foreach(target ${HUSK_PORT_TARGETS})
    if(NOT TARGET ${target})
      set(${variable} OFF PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

# Adds a static library with the functions of husk/ports.h over these ports.
function(husk_ports_table target)
  set(HUSK_DECLARATIONS "")
  set(HUSK_ROWS "")
  foreach(port ${ARGN})
    string(APPEND HUSK_DECLARATIONS
      "extern \"C\" HUSK_API const husk_port* husk_port_${port}(void);\n")
    string(APPEND HUSK_ROWS "    husk_port_${port},\n")
  endforeach()
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${target}.cpp)
  configure_file(${PROJECT_SOURCE_DIR}/runtime/cmake/ports.cpp.in ${source} @ONLY)
  add_library(${target} STATIC ${source})
  husk_strict(${target})
  target_link_libraries(${target} PUBLIC husk_headers)
endfunction()
