# Finds llama.cpp: an installed one whose state format we know, a given folder, or the pinned source, built into the cache.
# Leaves the targets llama and ggml, and CHUNKKV_LLAMA_PINNED: the folder of the pinned build when that is what is used.

# Sequence-state versions whose layout the adapter writes (adapters/llama/state.c).
set(CHUNKKV_STATE_VERSIONS 3)

function(chunkkv_state_version header result)
  set(${result} "" PARENT_SCOPE)
  if(EXISTS ${header})
    file(STRINGS ${header} line REGEX "define LLAMA_STATE_SEQ_VERSION")
    if(line MATCHES "([0-9]+)[ \t]*$")
      set(${result} ${CMAKE_MATCH_1} PARENT_SCOPE)
    endif()
  endif()
endfunction()

# From this folder and no other: what an earlier configuration found elsewhere is forgotten.
macro(chunkkv_find_llama prefix)
  foreach(variable llama_DIR ggml_DIR llama_LIBRARY GGML_LIBRARY GGML_BASE_LIBRARY)
    unset(${variable} CACHE)
  endforeach()
  get_cmake_property(chunkkv_cached CACHE_VARIABLES)
  foreach(variable IN LISTS chunkkv_cached)
    if(variable MATCHES "^(ggml|GGML)_.*_?LIBRARY$")
      unset(${variable} CACHE)
    endif()
  endforeach()
  find_package(ggml CONFIG REQUIRED PATHS ${prefix} NO_DEFAULT_PATH)
  find_package(llama CONFIG REQUIRED PATHS ${prefix} NO_DEFAULT_PATH)
endmacro()

set(CHUNKKV_LLAMA_PINNED "")
if(CHUNKKV_LLAMA STREQUAL "AUTO")
  unset(CHUNKKV_SYSTEM_LLAMA_H CACHE)
  find_path(CHUNKKV_SYSTEM_LLAMA_H llama.h)
  mark_as_advanced(CHUNKKV_SYSTEM_LLAMA_H)
  chunkkv_state_version(${CHUNKKV_SYSTEM_LLAMA_H}/llama.h version)
  if(version IN_LIST CHUNKKV_STATE_VERSIONS)
    find_package(llama CONFIG QUIET)
  elseif(CHUNKKV_SYSTEM_LLAMA_H)
    message(STATUS "the installed llama.cpp has sequence-state version '${version}', which is not known here (${CHUNKKV_STATE_VERSIONS}): "
      "using the pinned one")
  endif()
  if(NOT TARGET llama)
    execute_process(COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/scripts/fetch-llama.sh OUTPUT_VARIABLE CHUNKKV_LLAMA_PINNED
      OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
    if(failed)
      message(FATAL_ERROR "llama.cpp could not be fetched and built, see above. Give an installed one with "
        "-DCHUNKKV_LLAMA=folder, or build the core alone with -DCHUNKKV_LLAMA=OFF.")
    endif()
    chunkkv_find_llama(${CHUNKKV_LLAMA_PINNED})
  endif()
else()
  chunkkv_find_llama(${CHUNKKV_LLAMA})
endif()
chunkkv_state_version(${LLAMA_INCLUDE_DIR}/llama.h version)
if(NOT version IN_LIST CHUNKKV_STATE_VERSIONS)
  message(FATAL_ERROR "llama.cpp's sequence-state version is '${version}'; this chunkkv knows ${CHUNKKV_STATE_VERSIONS}")
endif()
if(NOT LLAMA_SHARED_LIB)
  enable_language(CXX) # a static llama.cpp needs the C++ library
endif()
message(STATUS "llama.cpp: ${llama_DIR} (sequence-state version ${version})")
