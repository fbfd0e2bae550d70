# The daemon's threads, watched by ThreadSanitizer: of this build is vrdmad alone. The programs, and
# the libraries that they load, are those of VRDMA_PLAIN_BUILD: what they share with the daemon is
# memory between processes, of which the sanitizer knows nothing, and programs of others are not
# started with it. Where that is not built these tests are skipped.
#
# Chosen is what makes threads meet: control, three workers, gRPC's, and those that reach into
# programs' memory. Each count is as low as still lets every pair of them meet many times: a race
# need not happen to be seen, only both sides of it be run.
set(programs ${VRDMA_PLAIN_BUILD}/tests/integration)
vrdma_integration(churn churn ${programs}/vrdma_churn 6)
vrdma_integration(sweep sweep 40)
vrdma_integration(quota quota)
vrdma_integration(isolation isolation)
foreach(mode direct mediated)
  vrdma_integration(life.${mode} life ${mode} SPINS)
endforeach()
# Where the daemon does the work.
vrdma_integration(takeover.mediated takeover mediated ${programs}/vrdma_takeover_flow
                  ${programs}/vrdma_takeover_objects ${programs}/vrdma_takeover_hostile
                  SPINS)
vrdma_integration(rdmacm_storm rdmacm_storm mediated ${programs}/vrdma_rdmacm_storm 2000)
# All attacks would take two minutes, and what exhausts the daemon finds the sanitizer's limits.
vrdma_integration(hostile hostile root ${programs}/vrdma_hostile 0
  closing_in_the_middle random_requests descriptors_on_everything a_socket_that_lingers
  a_file_that_does_not_answer files_of_the_daemon raw_packets_of_others guessed_keys sudden_deaths
  memory_without_answer cm_random_requests cm_closing_in_the_middle households
  anothers_queue_pair a_peer_that_comes_and_goes silent_peers imports_of_the_dead
  unmapped_under_the_worker regions_that_move destroyed_while_it_runs stopped another_program heirs
  without_its_first_thread
  SPINS)
