# fmt's library from its headers, which have its source; the package's own library is for the host.
if(NOT TARGET fmt::fmt)
  add_library(husk_cross_fmt STATIC ${CMAKE_CURRENT_LIST_DIR}/fmt.cpp)
  target_compile_features(husk_cross_fmt PRIVATE cxx_std_20)
  set_target_properties(husk_cross_fmt PROPERTIES UNITY_BUILD OFF)
  add_library(fmt::fmt ALIAS husk_cross_fmt)
endif()
