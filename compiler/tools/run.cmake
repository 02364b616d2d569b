# husk-run: uses the public headers of libhusk and nothing else of the tree.
if(TARGET husk)
  find_package(fmt REQUIRED)
  find_package(CLI11 REQUIRED)
  find_package(nlohmann_json REQUIRED)
  add_executable(husk-run
    ${CMAKE_CURRENT_LIST_DIR}/husk_run.cpp
    ${CMAKE_CURRENT_LIST_DIR}/run/call.cpp
    ${CMAKE_CURRENT_LIST_DIR}/run/files.cpp
    ${CMAKE_CURRENT_LIST_DIR}/run/inputs.cpp
    ${CMAKE_CURRENT_LIST_DIR}/run/machine.cpp
    ${CMAKE_CURRENT_LIST_DIR}/run/report.cpp
    ${CMAKE_CURRENT_LIST_DIR}/run/tensor.cpp)
  husk_warnings(husk-run)
  target_compile_features(husk-run PRIVATE cxx_std_20)
  target_include_directories(husk-run PRIVATE ${CMAKE_CURRENT_LIST_DIR})
  target_link_libraries(husk-run PRIVATE husk fmt::fmt CLI11::CLI11 nlohmann_json::nlohmann_json)
  install(TARGETS husk-run DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
