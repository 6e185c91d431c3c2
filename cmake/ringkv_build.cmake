# Compiler settings and the two functions that every folder uses.

include(GoogleTest)
find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(RocksDB CONFIG REQUIRED)
find_package(GTest REQUIRED)
find_package(spdlog REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(prometheus-cpp REQUIRED)
find_package(benchmark REQUIRED)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  add_link_options(-fuse-ld=mold)
endif()

# GCC 12 takes std::string's own moves for overlapping ones (its bug 105651).
add_compile_options(-Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers
  -Wno-restrict -Wno-maybe-uninitialized)
if(RINGKV_WERROR)
  add_compile_options(-Werror)
endif()
if(RINGKV_SANITIZE)
  # Under a sanitizer GCC 12 takes members of std::variant for uninitialised.
  add_compile_options(-fsanitize=${RINGKV_SANITIZE} -fno-omit-frame-pointer
    -Wno-maybe-uninitialized)
  add_link_options(-fsanitize=${RINGKV_SANITIZE})
endif()
if(RINGKV_PLANTED_BUGS)
  add_compile_definitions(RINGKV_PLANTED_BUGS=1)
endif()

# ringkv_library(NAME DIR... DEPS TARGET...)
# A static library of every .cc in the named folders (not below them).
function(ringkv_library name)
  cmake_parse_arguments(ARG "" "" "DIRS;EXCLUDE;DEPS" ${ARGN})
  set(sources)
  foreach(dir ${ARG_DIRS})
    file(GLOB found CONFIGURE_DEPENDS ${dir}/*.cc)
    list(APPEND sources ${found})
  endforeach()
  foreach(pattern ${ARG_EXCLUDE})
    list(FILTER sources EXCLUDE REGEX ${pattern})
  endforeach()
  if(sources)
    add_library(${name} STATIC ${sources})
    target_include_directories(${name} PUBLIC
      $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>
      $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/ringkv>)
    target_link_libraries(${name} PUBLIC ${ARG_DEPS})
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>)
    target_link_libraries(${name} INTERFACE ${ARG_DEPS})
  endif()
endfunction()

# Builds the test programs and nothing else.
add_custom_target(unit_tests)

# ringkv_test(NAME DIRS DIR... DEPS TARGET...)
# One GoogleTest program out of every *_test.cc in the named folders.
function(ringkv_test name)
  cmake_parse_arguments(ARG "" "" "DIRS;DEPS" ${ARGN})
  set(sources)
  foreach(dir ${ARG_DIRS})
    file(GLOB found CONFIGURE_DEPENDS ${dir}/*_test.cc)
    list(APPEND sources ${found})
  endforeach()
  if(NOT sources)
    return()
  endif()
  add_executable(${name} ${sources})
  add_dependencies(unit_tests ${name})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  # Every test is a ctest of its own, so that a crash hides no other result.
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS unit TIMEOUT 300)
endfunction()
