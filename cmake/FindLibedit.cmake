# Libedit::Libedit, line editing of the command; without it lines are read as they come.
find_path(LIBEDIT_INCLUDE_DIR histedit.h)
find_library(LIBEDIT_LIBRARY edit)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libedit
  REQUIRED_VARS LIBEDIT_LIBRARY LIBEDIT_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "chunkkv chat will have no line editing: libedit-dev brings it")
if(Libedit_FOUND AND NOT TARGET Libedit::Libedit)
  add_library(Libedit::Libedit UNKNOWN IMPORTED)
  set_target_properties(Libedit::Libedit PROPERTIES IMPORTED_LOCATION ${LIBEDIT_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${LIBEDIT_INCLUDE_DIR})
endif()
mark_as_advanced(LIBEDIT_INCLUDE_DIR LIBEDIT_LIBRARY)
