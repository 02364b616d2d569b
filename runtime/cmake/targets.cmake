# Functions that set the options of a target: warnings, the rules of embedded code, and shared
# libraries that are made of static ones. No option here reaches the targets of a parent project.

# Turns on the warnings that both g++ 12 and clang 14 keep clean.
function(husk_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # At -O3, GCC 12 reports the joining of a text and a std::string (its bug 105651).
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
  endif()
  if(HUSK_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # GCC errs on instrumented code of <regex> and <string>.
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
  endif()
endfunction()

# For tools of an instrumented build: -O0 halves the time of the compiler. What they call keeps its
# options.
function(husk_unoptimized_if_sanitized target)
  if(HUSK_SANITIZE)
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()

# Options of embedded code: no exceptions, no RTTI, no visible symbol but HUSK_API, and position
# independent, since it becomes a part of shared libraries.
function(husk_strict target)
  husk_warnings(${target})
  set_target_properties(${target} PROPERTIES
    CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden C_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON)
  # The last option: calls of an exported function from the same library stay inside.
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-fno-exceptions -fno-rtti -fno-threadsafe-statics>
    -fno-asynchronous-unwind-tables -ffunction-sections -fdata-sections -fno-math-errno
    -fno-semantic-interposition)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # The objects have both machine code and LTO's form: static libraries work without LTO.
    target_compile_options(${target} PRIVATE $<$<CONFIG:MinSizeRel>:-flto=auto -ffat-lto-objects>)
  endif()
endfunction()

# Adds a shared library that consists of whole static libraries, exports HUSK_API and nothing
# else, and needs no C++ library at run time.
function(husk_library target)
  add_library(${target} SHARED ${PROJECT_SOURCE_DIR}/runtime/library.c)
  foreach(part ${ARGN})
    target_link_libraries(${target} PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,${part}>)
  endforeach()
  target_link_libraries(${target} PUBLIC husk_headers)
  # The loader binds all symbols at once and then makes their addresses read-only (RELRO), because
  # the library opens files of unknown origin. Calls of the library's own API stay inside of it.
  target_link_options(${target} PRIVATE
    -Wl,--as-needed -Wl,--gc-sections -Wl,-z,relro -Wl,-z,now -Wl,-Bsymbolic-functions)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_link_options(${target} PRIVATE $<$<CONFIG:MinSizeRel>:-Os -flto=auto>)
  endif()
  if(NOT HUSK_SANITIZE)
    target_link_options(${target} PRIVATE -Wl,--no-undefined)
  endif()
endfunction()
