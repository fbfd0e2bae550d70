// verbs_conformance: runs the tests of one group, each in a fresh pair of processes.
//
//   launcher --netns-a X --netns-b Y --dev DEV [--user UID] [--fabrics 1|2] [--seed N] [--only
//   NAME] GROUP
//        |  for each test: two children; each enters its namespace, gives up its rights if told
//        |  to, and executes this program again as
//        +-- --side a|b --fd N --errands N --seed N --test GROUP.NAME
//
// The launcher does errands for the tests that no verb could: it changes addresses and links.
#include <grp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/conformance/launcher.h"
#include "tests/conformance/side.h"
#include "tests/conformance/test.h"

namespace conformance {

std::vector<Test>& all_tests() {
  static auto* tests = new std::vector<Test>;
  return *tests;
}

void fail(const char* file, int line, const std::string& what) {
  const char* name = std::strrchr(file, '/');
  std::fprintf(stderr, "    %s:%d: %s\n", name != nullptr ? name + 1 : file, line, what.c_str());
  std::fflush(nullptr);
  _exit(kFailed);
}

void skip(const std::string& why) {
  std::fprintf(stderr, "    skipped: %s\n", why.c_str());
  std::fflush(nullptr);
  _exit(kSkipped);
}

namespace {

int run_side(const SideOptions& options, const std::string& name) {
  for (const Test& test : all_tests()) {
    if (std::string(test.group) + "." + test.name != name) continue;
    ::alarm(kTestSeconds);
    Side side(options);
    test.run(side);
    side.close();
    return 0;
  }
  std::fprintf(stderr, "there is no test '%s'\n", name.c_str());
  return 2;
}

}  // namespace
}  // namespace conformance

int main(int argc, char** argv) {
  using namespace conformance;
  SideOptions side;
  LauncherOptions launcher;
  std::string test;
  for (int i = 1; i < argc; ++i) {
    const std::string key = argv[i];
    if (key.rfind("--", 0) != 0) {
      launcher.group = key;
      continue;
    }
    if (i + 1 == argc) {
      std::fprintf(stderr, "%s needs a value\n", key.c_str());
      return 2;
    }
    const std::string value = argv[++i];
    if (key == "--side")
      side.is_a = value == "a";
    else if (key == "--fd")
      side.channel = std::stoi(value);
    else if (key == "--errands")
      side.errands = std::stoi(value);
    else if (key == "--seed")
      side.seed = launcher.seed = std::stoull(value);
    else if (key == "--test")
      test = value;
    else if (key == "--netns-a")
      launcher.netns[0] = value;
    else if (key == "--netns-b")
      launcher.netns[1] = value;
    else if (key == "--dev")
      launcher.netdev = value;
    else if (key == "--user")
      launcher.uid = static_cast<unsigned>(std::stoul(value));
    else if (key == "--fabrics")
      launcher.apart = value == "2";
    else if (key == "--only")
      launcher.only = value;
    else {
      std::fprintf(stderr, "unknown option %s\n", key.c_str());
      return 2;
    }
  }
  return test.empty() ? launch(launcher) : run_side(side, test);
}
