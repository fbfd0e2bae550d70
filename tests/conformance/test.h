// A conformance test: one function that two processes run at once, `a` and `b`, each with its own
// device. It uses only verbs.h and does not depend on the transport.
//
//   CONFORMANCE_TEST(progress, send_before_receive) {
//     if (side.is_a()) ...
//   }
//
// A failed check ends the process with a message; its peer then finds the side channel closed and
// ends too. Every wait has a generous limit, so nothing hangs.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

namespace conformance {

class Side;

struct Test {
  const char* group;
  const char* name;
  void (*run)(Side& side);
  unsigned traits;
};

enum Traits : unsigned {
  kBKilled = 1,    // b ends by SIGKILL, as part of the test
  kOneFabric = 2,  // not on two hosts: multicast, and news of a process that was killed
  kOneByOne = 4,   // one request begins when another is complete; on a network they overlap
};

std::vector<Test>& all_tests();
struct Registration {
  explicit Registration(const Test& test) { all_tests().push_back(test); }
};

#define CONFORMANCE_TEST_WITH(group_, name_, traits_)        \
  static void group_##_##name_(Side& side);                  \
  static const Registration registration_##group_##_##name_( \
      Test{#group_, #name_, group_##_##name_, traits_});     \
  static void group_##_##name_([[maybe_unused]] Side& side)
#define CONFORMANCE_TEST(group_, name_) CONFORMANCE_TEST_WITH(group_, name_, 0)

[[noreturn]] void fail(const char* file, int line, const std::string& what);
// Ends this process (and, by the side channel, its peer) as skipped.
[[noreturn]] void skip(const std::string& why);

#define CHECK(condition)                                                 \
  do {                                                                   \
    if (!(condition)) fail(__FILE__, __LINE__, #condition " is not so"); \
  } while (false)

template <class A, class B>
void check_equal(const A& got, const B& wanted, const char* expression, const char* file,
                 int line) {
  if (got == wanted) return;
  std::ostringstream text;
  text << expression << " is " << +got << ", not " << +wanted;
  fail(file, line, text.str());
}
#define CHECK_EQ(got, wanted) check_equal(got, wanted, #got, __FILE__, __LINE__)

}  // namespace conformance
