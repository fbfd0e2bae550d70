add_executable(vrdma_hostile
  hostile/client.cc hostile/connections.cc hostile/descriptors.cc hostile/holds.cc
  hostile/main.cc hostile/memory.cc hostile/messages.cc hostile/objects.cc hostile/processes.cc hostile/races.cc
  hostile/raw.cc hostile/rings.cc hostile/silent_file.cc hostile/strangers.cc)
vrdma_target(vrdma_hostile)
find_package(Threads REQUIRED)
target_link_libraries(vrdma_hostile PRIVATE vrdma_core_ipc vrdma_core_base Threads::Threads)

foreach(user root nobody)
  vrdma_integration(hostile.${user} hostile ${user} $<TARGET_FILE:vrdma_hostile>
                    SPINS)
endforeach()

# One attack each.
add_executable(vrdma_hostile_snoop hostile/client.cc hostile/connections.cc hostile/snoop.cc)
vrdma_target(vrdma_hostile_snoop)
target_link_libraries(vrdma_hostile_snoop PRIVATE vrdma_core_ipc vrdma_core_base Threads::Threads)
vrdma_integration(hostile_visible hostile/visible $<TARGET_FILE:vrdma_hostile_snoop>)
vrdma_integration(hostile_inode hostile/inode)
add_executable(vrdma_identity hostile/client.cc hostile/identity.cc)
vrdma_target(vrdma_identity)
target_link_libraries(vrdma_identity PRIVATE vrdma_core_ipc vrdma_core_base)
vrdma_integration(hostile_identity hostile/identity $<TARGET_FILE:vrdma_identity>)
add_executable(vrdma_fair hostile/client.cc hostile/fair.cc)
vrdma_target(vrdma_fair)
target_link_libraries(vrdma_fair PRIVATE vrdma_core_ipc vrdma_core_base)
foreach(attack turns groups reach cpu)
  vrdma_integration(hostile_fair.${attack} hostile/fair ${attack} $<TARGET_FILE:vrdma_fair>
                    SPINS)
endforeach()
vrdma_integration(hostile_default hostile/default SPINS)
vrdma_integration(hostile_squat hostile/squat)
vrdma_integration(hostile_seats hostile/seats)
add_executable(vrdma_hangs hostile/client.cc hostile/hangs.cc hostile/silent_file.cc)
vrdma_target(vrdma_hangs)
target_link_libraries(vrdma_hangs PRIVATE vrdma_core_ipc vrdma_core_base)
target_link_libraries(vrdma_hangs PRIVATE Threads::Threads)
vrdma_integration(hostile_hangs hostile/hangs $<TARGET_FILE:vrdma_hangs>)
foreach(attack hold lock exec)
  vrdma_integration(hostile_exit.${attack} hostile/exit $<TARGET_FILE:vrdma_hangs> ${attack})
endforeach()
foreach(what daemon worker)
  vrdma_integration(hostile_hung_takeover.${what} hostile/hung_takeover $<TARGET_FILE:vrdma_hangs>
                    $<TARGET_FILE:vrdma_takeover_flow> ${what} SPINS)
endforeach()
add_executable(vrdma_connects hostile/client.cc hostile/connections.cc hostile/connects.cc)
vrdma_target(vrdma_connects)
target_link_libraries(vrdma_connects PRIVATE vrdma_core_ipc vrdma_core_base Threads::Threads)
vrdma_integration(hostile_connects hostile/connects $<TARGET_FILE:vrdma_connects>)
