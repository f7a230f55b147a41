# LAPACKE::LAPACKE, the C interface to LAPACK, which finds low-rank bases; without it codecs of that kind are refused.
# Some systems have it in a library of its own, others within OpenBLAS, with or without the header in a folder of its own.
find_path(LAPACKE_INCLUDE_DIR lapacke.h PATH_SUFFIXES lapacke openblas)
find_library(LAPACKE_LIBRARY NAMES lapacke openblas)

# An OpenBLAS may come without it, and a static library wants others that we don't guess: what doesn't link is not found.
if(LAPACKE_INCLUDE_DIR AND LAPACKE_LIBRARY AND CMAKE_C_COMPILER_LOADED)
  include(CheckCSourceCompiles)
  include(CMakePushCheckState)
  cmake_push_check_state(RESET)
  set(CMAKE_REQUIRED_QUIET TRUE)
  set(CMAKE_REQUIRED_INCLUDES ${LAPACKE_INCLUDE_DIR})
  set(CMAKE_REQUIRED_LIBRARIES ${LAPACKE_LIBRARY} m)
  if(NOT LAPACKE_LINKS)
    unset(LAPACKE_LINKS CACHE) # what was missing may have been installed
  endif()
  check_c_source_compiles("#include <lapacke.h>
    int main(void) {
      double a = 1, w, work; lapack_int i;
      return LAPACKE_dsyevd_work(LAPACK_COL_MAJOR, 'V', 'L', 1, &a, 1, &w, &work, 1, &i, 1) != 0;
    }" LAPACKE_LINKS)
  cmake_pop_check_state()
else()
  set(LAPACKE_LINKS TRUE)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LAPACKE
  REQUIRED_VARS LAPACKE_LIBRARY LAPACKE_INCLUDE_DIR LAPACKE_LINKS
  REASON_FAILURE_MESSAGE "low-rank codecs (palu) will be refused: liblapacke-dev brings it")
if(LAPACKE_FOUND AND NOT TARGET LAPACKE::LAPACKE)
  add_library(LAPACKE::LAPACKE UNKNOWN IMPORTED)
  set_target_properties(LAPACKE::LAPACKE PROPERTIES IMPORTED_LOCATION ${LAPACKE_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${LAPACKE_INCLUDE_DIR})
endif()
mark_as_advanced(LAPACKE_INCLUDE_DIR LAPACKE_LIBRARY)
