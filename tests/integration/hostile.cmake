add_executable(vrdma_hostile
  hostile/client.cc hostile/connections.cc hostile/descriptors.cc hostile/main.cc
  hostile/memory.cc hostile/messages.cc hostile/objects.cc hostile/processes.cc hostile/races.cc
  hostile/raw.cc hostile/rings.cc hostile/silent_file.cc hostile/strangers.cc)
vrdma_target(vrdma_hostile)
find_package(Threads REQUIRED)
target_link_libraries(vrdma_hostile PRIVATE vrdma_core_ipc vrdma_core_base Threads::Threads)

# Who the attacker is does not change what the sanitizers see.
set(users root nobody)
if(VRDMA_SANITIZE)
  set(users root)
endif()
foreach(user ${users})
  vrdma_integration(hostile.${user} hostile ${user} $<TARGET_FILE:vrdma_hostile>
                    PROCESSORS 2 TIMEOUT 300)
endforeach()
