# Checks that need nothing built but headers.py, which needs the generated headers of the API.
set(lint ${CMAKE_CURRENT_SOURCE_DIR})
vrdma_lint(includes COMMAND Python3::Interpreter ${lint}/includes.py)
vrdma_lint(includes_self_test COMMAND Python3::Interpreter ${lint}/includes.py --self-test)
vrdma_lint(format COMMAND Python3::Interpreter ${lint}/format.py)
vrdma_lint(words COMMAND Python3::Interpreter ${lint}/words.py)
vrdma_lint(scripts COMMAND Python3::Interpreter ${lint}/scripts.py)
vrdma_lint(man COMMAND Python3::Interpreter ${lint}/man.py)
vrdma_lint(headers PROCESSORS 2 COMMAND Python3::Interpreter ${lint}/headers.py ${CMAKE_BINARY_DIR})
