# husk_reference: pages about the C and C++ interface, made from the headers by Doxygen. The target
# fails if a public name has no comment.
find_program(HUSK_DOXYGEN doxygen)
if(HUSK_DOXYGEN)
  set(husk_doxyfile ${PROJECT_BINARY_DIR}/Doxyfile)
  configure_file(${PROJECT_SOURCE_DIR}/runtime/Doxyfile.in ${husk_doxyfile} @ONLY)
  add_custom_target(husk_reference
    COMMAND ${HUSK_DOXYGEN} ${husk_doxyfile}
    COMMAND ${CMAKE_COMMAND} -E echo "${PROJECT_BINARY_DIR}/reference/html/husk_8h.html"
    COMMENT "The reference of the interface" VERBATIM)
endif()
