# What the daemon's programs contain.
if(TARGET vrdmad-helper)
  vrdma_lint(helper_program COMMAND Python3::Interpreter
    ${CMAKE_CURRENT_SOURCE_DIR}/helper_program.py $<TARGET_FILE:vrdmad-helper> $<TARGET_FILE:vrdmad>)
endif()
