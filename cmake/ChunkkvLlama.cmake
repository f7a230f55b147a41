# Finds llama.cpp: an installed one whose state format we know, a given folder, or the pinned source, built into the cache.
# Leaves the targets llama and ggml.

# Sequence-state versions whose layout the adapter writes (adapters/llama/state.c).
set(CHUNKKV_STATE_VERSIONS 3)

function(chunkkv_state_version result)
  set(${result} "" PARENT_SCOPE)
  get_target_property(dirs llama INTERFACE_INCLUDE_DIRECTORIES)
  foreach(dir IN LISTS dirs LLAMA_INCLUDE_DIR)
    if(EXISTS ${dir}/llama.h)
      file(STRINGS ${dir}/llama.h line REGEX "define LLAMA_STATE_SEQ_VERSION")
      if(line MATCHES "([0-9]+)[ \t]*$")
        set(${result} ${CMAKE_MATCH_1} PARENT_SCOPE)
      endif()
    endif()
  endforeach()
endfunction()

macro(chunkkv_find_llama prefix)
  find_package(ggml CONFIG REQUIRED PATHS ${prefix} NO_DEFAULT_PATH)
  find_package(llama CONFIG REQUIRED PATHS ${prefix} NO_DEFAULT_PATH)
endmacro()

if(CHUNKKV_LLAMA STREQUAL "AUTO")
  find_package(llama CONFIG QUIET)
  if(llama_FOUND)
    chunkkv_state_version(version)
    if(NOT version IN_LIST CHUNKKV_STATE_VERSIONS)
      message(FATAL_ERROR "The llama.cpp in ${llama_DIR} has sequence-state version '${version}'; this chunkkv knows "
        "${CHUNKKV_STATE_VERSIONS}. Configure with -DCMAKE_DISABLE_FIND_PACKAGE_llama=ON to use the pinned one.")
    endif()
  else()
    execute_process(COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/scripts/fetch-llama.sh OUTPUT_VARIABLE prefix
      OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
    if(failed)
      message(FATAL_ERROR "llama.cpp could not be fetched and built, see above. Give an installed one with "
        "-DCHUNKKV_LLAMA=folder, or build the core alone with -DCHUNKKV_LLAMA=OFF.")
    endif()
    set(CMAKE_DISABLE_FIND_PACKAGE_llama OFF)
    chunkkv_find_llama(${prefix})
  endif()
else()
  chunkkv_find_llama(${CHUNKKV_LLAMA})
endif()
chunkkv_state_version(version)
if(NOT version IN_LIST CHUNKKV_STATE_VERSIONS)
  message(FATAL_ERROR "llama.cpp's sequence-state version is '${version}'; this chunkkv knows ${CHUNKKV_STATE_VERSIONS}")
endif()
message(STATUS "llama.cpp: ${llama_DIR} (sequence-state version ${version})")
