# How every target of the project is compiled and linked.
include(CheckCXXCompilerFlag)

# hutch_plain_flags: without sanitizers, for the static agent.
add_library(hutch_plain_flags INTERFACE)
target_include_directories(hutch_plain_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_definitions(hutch_plain_flags INTERFACE _GNU_SOURCE HUTCH_VERSION="${PROJECT_VERSION}")
target_compile_options(hutch_plain_flags INTERFACE
  -Wall -Wextra -Wconversion -Wshadow -Werror -fno-strict-aliasing -fstack-protector-strong)
# gcc 12 sees overlapping copies in std::string concatenation where there are none (GCC PR 105651).
target_compile_options(hutch_plain_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  target_compile_options(hutch_plain_flags INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
  target_link_options(hutch_plain_flags INTERFACE -Wl,-z,relro,-z,now)
endif()
add_library(hutch_flags INTERFACE)
target_link_libraries(hutch_flags INTERFACE hutch_plain_flags)
if(HUTCH_SANITIZE)
  # gcc's flow warnings see uninitialised values in what the sanitizers add; the plain builds keep them fatal.
  target_compile_options(hutch_flags INTERFACE -fsanitize=${HUTCH_SANITIZE} -fno-omit-frame-pointer
    $<$<CXX_COMPILER_ID:GNU>:-Wno-error=maybe-uninitialized>)
  target_link_options(hutch_flags INTERFACE -fsanitize=${HUTCH_SANITIZE})
endif()
# Of tests: under sanitizers an optimizer takes three times as long as the rest of the compiler; _FORTIFY_SOURCE needs one.
add_library(hutch_test_flags INTERFACE)
target_link_libraries(hutch_test_flags INTERFACE hutch_flags)
# With little optimization gcc takes for uninitialized what is not.
if(HUTCH_SANITIZE)
  target_compile_options(hutch_test_flags INTERFACE -O0)
else()
  target_compile_options(hutch_test_flags INTERFACE -O1)
endif()
target_compile_options(hutch_test_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)

# hutch_library(NAME SOURCES... LINK_PUBLIC... LINK_PRIVATE...): a folder's one static library.
# What a folder may link is its row in the layer table of docs/style.md; tests/style checks the includes.
function(hutch_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK_PUBLIC;LINK_PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES OUTPUT_NAME hutch_${name})
  target_link_libraries(${name} PUBLIC hutch_flags ${ARG_LINK_PUBLIC} PRIVATE ${ARG_LINK_PRIVATE})
  foreach(source ${ARG_SOURCES})
    if(source MATCHES "_child\\.cc$")
      # Runs after clone: no exceptions, no run-time types; tests/style checks the symbols it needs.
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-fno-exceptions;-fno-rtti")
    endif()
  endforeach()
endfunction()

# hutch_precompile(TARGET [HEADER...]): clang reads the headers that take most of its time once for the target. Sources include
# what they need all the same: gcc builds without, since gcc 12 does not know of a precompiled header that it is the
# system's, and then shows the overflows that it imagines in std::string (GCC PR 105651).
function(hutch_precompile target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    target_precompile_headers(${target} PRIVATE <nlohmann/json.hpp> <chrono> <functional> <map> <memory> <optional> <string>
      <vector> ${ARGN})
  endif()
endfunction()

# hutch_test(NAME SOURCES... LINK... LABELS...): one GoogleTest program; CTest runs each case in a process of its own.
function(hutch_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE hutch_test_flags ${ARG_LINK} GTest::gtest GTest::gmock GTest::gtest_main)
  hutch_precompile(${name} <gmock/gmock.h> <gtest/gtest.h>)
  gtest_discover_tests(${name} PROPERTIES TIMEOUT 120 LABELS "${ARG_LABELS}" DISCOVERY_TIMEOUT 60)
endfunction()
