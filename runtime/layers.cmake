# Fails if a source includes a header of a layer that it must not know. `cmake -P
# runtime/layers.cmake` checks the tree; each configuration does it too. The libraries husk_model
# and husk_core make the same border a link error.
cmake_minimum_required(VERSION 3.25)

# The sources of `folder` include of the folders `layers` those that are ALLOWED.
function(husk_check_layer folder)   # ALLOWED...
  get_filename_component(root ${CMAKE_CURRENT_FUNCTION_LIST_DIR} DIRECTORY)
  file(GLOB_RECURSE sources ${root}/${folder}/*.h ${root}/${folder}/*.cpp ${root}/${folder}/*.def)
  if(NOT sources)
    message(FATAL_ERROR "${folder}, which runtime/layers.cmake names, has no sources")
  endif()
  list(JOIN layers "|" any)
  foreach(source ${sources})
    file(STRINGS ${source} includes REGEX "^#include \"(${any})/")
    foreach(include ${includes})
      string(REGEX REPLACE "^#include \"([a-z]+)/.*" "\\1" layer "${include}")
      if(NOT layer IN_LIST ARGN)
        message(FATAL_ERROR "${source} must not have ${include}: ${folder} may include '${ARGN}'")
      endif()
    endforeach()
  endforeach()
endfunction()

set(layers base model plan program session)   # of runtime/src
husk_check_layer(runtime/src/base base)
husk_check_layer(runtime/src/model base model)
husk_check_layer(runtime/src/plan base model plan)
husk_check_layer(runtime/src/program base model program)
husk_check_layer(runtime/src/session base model plan program session)
husk_check_layer(runtime/signature base)
husk_check_layer(runtime/text base)
husk_check_layer(runtime/weights base model)
husk_check_layer(runtime/packing program)
husk_check_layer(compiler base model plan)
husk_check_layer(ports)

set(layers ir read passes write tools)   # of compiler
husk_check_layer(compiler/ir ir)
husk_check_layer(compiler/read ir read)
husk_check_layer(compiler/passes ir read passes)
husk_check_layer(compiler/write ir read passes write)

# The folders of operators of the host lie between the ground, `core`, and the roof, `library`.
set(layers collective core elementwise indexing library linalg movement nn random reduce spectral)
husk_check_layer(ports/host/src)
husk_check_layer(ports/host/ops/core core)
foreach(folder collective elementwise indexing linalg movement random spectral)
  husk_check_layer(ports/host/ops/${folder} core ${folder})
endforeach()
husk_check_layer(ports/host/ops/nn core linalg nn)
husk_check_layer(ports/host/ops/reduce core indexing reduce)
husk_check_layer(ports/host/ops/library core linalg nn random spectral library)
