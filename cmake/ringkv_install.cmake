# What `cmake --install` lays down: the programs, the client library with its
# CMake package (find_package(ringkv), target ringkv::client), and the public
# .proto files for every other language.

include(CMakePackageConfigHelpers)

foreach(program kvnode kvctl kvbench kvsim)
  if(TARGET ${program})
    install(TARGETS ${program})
  endif()
endforeach()

set(libraries ringkv_base ringkv_proto ringkv_grpc ringkv_ring ringkv_client)
foreach(library ${libraries})
  string(REPLACE ringkv_ "" name ${library})
  set_target_properties(${library} PROPERTIES EXPORT_NAME ${name})
endforeach()
install(TARGETS ${libraries} EXPORT ringkv-targets)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ringkv)
install(EXPORT ringkv-targets NAMESPACE ringkv:: DESTINATION ${package_dir})
configure_package_config_file(
  ${CMAKE_SOURCE_DIR}/cmake/ringkv-config.cmake.in
  ${CMAKE_BINARY_DIR}/ringkv-config.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(
  ${CMAKE_BINARY_DIR}/ringkv-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_BINARY_DIR}/ringkv-config.cmake
  ${CMAKE_BINARY_DIR}/ringkv-config-version.cmake
  DESTINATION ${package_dir})

install(FILES client/client.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ringkv/client)
install(DIRECTORY proto/ringkv/v1 DESTINATION ${CMAKE_INSTALL_DATADIR}/ringkv/proto/ringkv
  FILES_MATCHING PATTERN "*.proto")
