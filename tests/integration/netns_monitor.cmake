# Of netns/, in C++: it needs root, which unit tests do not.
find_package(GTest REQUIRED)
add_executable(netns_monitor_test netns_monitor_test.cc)
vrdma_target(netns_monitor_test)
target_link_libraries(netns_monitor_test PRIVATE vrdma_netns GTest::gmock GTest::gtest_main)
vrdma_gtests(netns_monitor_test integration.netns root)
