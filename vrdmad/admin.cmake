# The admin side of the daemon, and what it keeps in its run directory. vrdmad/CMakeLists.txt includes this file and links vrdma_admin; the
# tests of the admin side do too, and so need nothing else of the daemon.
include_guard(GLOBAL)
add_library(vrdma_admin STATIC
  ${CMAKE_CURRENT_LIST_DIR}/admin_server.cc
  ${CMAKE_CURRENT_LIST_DIR}/admin_service.cc
  ${CMAKE_CURRENT_LIST_DIR}/run_dir.cc
  ${CMAKE_CURRENT_LIST_DIR}/sysfs_tree.cc)
vrdma_target(vrdma_admin)
target_compile_definitions(vrdma_admin PRIVATE VRDMA_VERSION="${PROJECT_VERSION}")
target_link_libraries(vrdma_admin PUBLIC vrdma_api vrdma_core_verbs vrdma_vrdmad_acceptor)
