# Libraries, headers, command, man page, CMake package and pkg-config files.
include(CMakePackageConfigHelpers)

install(TARGETS ${CHUNKKV_INSTALL} EXPORT chunkkv-targets
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${CHUNKKV_HEADERS} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/chunkkv)
install(EXPORT chunkkv-targets NAMESPACE chunkkv:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/chunkkv)

set(CHUNKKV_CONFIG "include(CMakeFindDependencyMacro)\n")
set(CHUNKKV_PKG_NAMES chunkkv)
if(TARGET chunkkv-llama-static)
  string(APPEND CHUNKKV_CONFIG "find_dependency(llama)\n")
  list(APPEND CHUNKKV_PKG_NAMES chunkkv-llama)
  install(FILES docs/chunkkv.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
string(APPEND CHUNKKV_CONFIG "include(\${CMAKE_CURRENT_LIST_DIR}/chunkkv-targets.cmake)\n")
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/chunkkv-config.cmake "${CHUNKKV_CONFIG}")
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/chunkkv-config-version.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/chunkkv-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/chunkkv-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/chunkkv)

foreach(name IN LISTS CHUNKKV_PKG_NAMES)
  if(name STREQUAL "chunkkv")
    set(PKG_REQUIRES "")
  else()
    set(PKG_REQUIRES "chunkkv llama")
  endif()
  configure_file(cmake/pkgconfig.in ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
