# Fails if a source includes a header of a layer that it must not know. `cmake -P
# runtime/layers.cmake` checks the tree; each configuration does it too. The libraries husk_model
# and husk_core make the same border a link error.
cmake_minimum_required(VERSION 3.25)

function(husk_check_layer folder)   # ALLOWED...
  file(GLOB_RECURSE sources ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../${folder}/*.h
    ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../${folder}/*.cpp)
  foreach(source ${sources})
    file(STRINGS ${source} includes REGEX "^#include \"(base|model|plan|program|session)/")
    foreach(include ${includes})
      string(REGEX REPLACE "^#include \"([a-z]+)/.*" "\\1" layer "${include}")
      if(NOT layer IN_LIST ARGN)
        message(FATAL_ERROR "${source} must not have ${include}: ${folder} may include '${ARGN}'")
      endif()
    endforeach()
  endforeach()
endfunction()

husk_check_layer(runtime/src/base base)
husk_check_layer(runtime/src/model base model)
husk_check_layer(runtime/src/plan base model plan)
husk_check_layer(runtime/src/program base model program)
husk_check_layer(runtime/src/session base model plan program session)
husk_check_layer(runtime/signature base)
husk_check_layer(runtime/weights base model)
husk_check_layer(compiler base model plan)
husk_check_layer(ports)
