# husk-run uses only the public headers of libhusk.
if(TARGET husk)
  set(folder ${CMAKE_CURRENT_LIST_DIR}/run)
  add_library(husk_run_parts STATIC
    ${folder}/call.cpp
    ${folder}/files.cpp
    ${folder}/handles.cpp
    ${folder}/inputs.cpp
    ${folder}/machine.cpp
    ${folder}/ranks.cpp
    ${folder}/report.cpp
    ${folder}/tensor.cpp
    ${folder}/trace.cpp)
  husk_warnings(husk_run_parts)
  husk_unoptimized_if_sanitized(husk_run_parts)
  target_compile_features(husk_run_parts PUBLIC cxx_std_20)
  target_include_directories(husk_run_parts
    PUBLIC ${CMAKE_CURRENT_LIST_DIR} ${CMAKE_CURRENT_LIST_DIR}/..)
  target_link_libraries(husk_run_parts
    PUBLIC husk husk_ops fmt::fmt PRIVATE nlohmann_json::nlohmann_json)

  add_executable(husk-run
    ${CMAKE_CURRENT_LIST_DIR}/husk_run.cpp ${CMAKE_CURRENT_LIST_DIR}/out_of_memory.cpp)
  husk_warnings(husk-run)
  husk_unoptimized_if_sanitized(husk-run)
  target_compile_definitions(husk-run PRIVATE HUSK_VERSION="${PROJECT_VERSION}")
  target_link_libraries(husk-run PRIVATE husk_run_parts CLI11::CLI11)

  set(folder ${CMAKE_CURRENT_LIST_DIR}/bench)
  find_package(Threads REQUIRED)
  add_library(husk_bench_parts STATIC
    ${folder}/inputs.cpp
    ${folder}/port_calls.cpp
    ${folder}/profile.cpp
    ${folder}/statistics.cpp)
  husk_warnings(husk_bench_parts)
  husk_unoptimized_if_sanitized(husk_bench_parts)
  target_link_libraries(husk_bench_parts
    PUBLIC husk_run_parts PRIVATE nlohmann_json::nlohmann_json)

  add_executable(husk-bench
    ${CMAKE_CURRENT_LIST_DIR}/husk_bench.cpp ${CMAKE_CURRENT_LIST_DIR}/out_of_memory.cpp)
  husk_warnings(husk-bench)
  husk_unoptimized_if_sanitized(husk-bench)
  target_compile_definitions(husk-bench PRIVATE HUSK_VERSION="${PROJECT_VERSION}")
  target_link_libraries(husk-bench
    PRIVATE husk_bench_parts husk_compiler Threads::Threads nlohmann_json::nlohmann_json
      CLI11::CLI11)

  # husk-chat and husk-text need libhusk_text, which is left out without its libraries.
  if(TARGET husk_text)
    foreach(tool chat text)
      add_executable(husk-${tool}
        ${CMAKE_CURRENT_LIST_DIR}/husk_${tool}.cpp ${CMAKE_CURRENT_LIST_DIR}/out_of_memory.cpp)
      husk_warnings(husk-${tool})
      husk_unoptimized_if_sanitized(husk-${tool})
      target_compile_definitions(husk-${tool} PRIVATE HUSK_VERSION="${PROJECT_VERSION}")
      target_link_libraries(husk-${tool} PRIVATE husk_run_parts husk_text CLI11::CLI11)
    endforeach()
    target_link_libraries(husk-text PRIVATE husk_bench_parts nlohmann_json::nlohmann_json)
  endif()
endif()
