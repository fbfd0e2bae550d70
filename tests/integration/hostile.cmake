add_executable(vrdma_hostile
  hostile/client.cc hostile/connections.cc hostile/descriptors.cc hostile/main.cc
  hostile/memory.cc hostile/messages.cc hostile/objects.cc hostile/processes.cc hostile/races.cc
  hostile/raw.cc hostile/rings.cc hostile/silent_file.cc hostile/strangers.cc)
vrdma_target(vrdma_hostile)
find_package(Threads REQUIRED)
target_link_libraries(vrdma_hostile PRIVATE vrdma_core_ipc vrdma_core_base Threads::Threads)

foreach(user root nobody)
  vrdma_integration(hostile.${user} hostile ${user} $<TARGET_FILE:vrdma_hostile>
                    PROCESSORS 2 TIMEOUT 300)
endforeach()
