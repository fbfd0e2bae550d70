// vrdma-oci-hook: what container runtimes call (OCI runtime specification, hooks), and, under the
// name vrdma-runtime, a runtime that calls it.
//
// The program is static, and the hook ignores its environment: some runtimes give a hook that of
// the container, which an image's author wrote.
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "cli/hook/call.h"
#include "cli/hook/root.h"
#include "cli/hook/runtime.h"
#include "cli/hook/setup.h"
#include "core/base/printable.h"
#include "core/base/read_all.h"

namespace vrdma::cli::hook {
namespace {

using base::Result;

constexpr char kUsage[] =
    "usage: vrdma-oci-hook [--run-dir DIR] createRuntime CLASS | createRuntime --claim UID --share "
    "ID | poststop, with the state of a container on standard input";

// On both streams, because runtimes show one or the other.
void complain(const std::string& sentence) {
  const std::string line = "vrdma: " + base::printable(sentence) + "\n";
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO})
    (void)!::write(stream, line.data(), line.size());
}

// The path of this program.
Result<std::string> own_path() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0 || length == sizeof path) return base::fail_errno("read /proc/self/exe");
  return std::string(path, static_cast<size_t>(length));
}

Result<Container> read_state() {
  const base::Fd input(::dup(STDIN_FILENO));
  const auto text = base::read_all(input, kMostState);
  if (!text) return base::pass(text.error(), "the state of the container");
  return parse_state(*text);
}

Result<void> create_runtime(const Wish& wish, const std::string& run_dir) {
  const auto container = read_state();
  if (!container) return base::pass(container.error());
  auto program = own_path();
  if (!program) return base::pass(std::move(program).error());
  // The libraries are installed beside the hook.
  const std::string libraries = program->substr(0, program->rfind('/'));
  return set_up(*container, wish, {libraries, run_dir});
}

// A container that has ended must not fail to end: vrdmad sees its end by itself.
void poststop(const std::string& run_dir) {
  if (const auto container = read_state()) (void)end(*container, run_dir);
}

// None: the words are not those of a createRuntime.
std::optional<Wish> wish_in(const std::vector<std::string>& words) {
  if (words.empty() || words[0] != "createRuntime") return {};
  if (words.size() == 2 && words[1] != "--claim") return Wish{words[1], "", ""};
  if (words.size() != 5 || words[1] != "--claim" || words[3] != "--share") return {};
  // Without them, it would be the class `default`.
  if (words[2].empty() || words[4].empty()) return {};
  return Wish{"", words[2], words[4]};
}

int run_hook(std::vector<std::string> words) {
  ::clearenv();
  ::umask(022);
  std::signal(SIGPIPE, SIG_IGN);  // the runtime may have closed the streams
  std::string run_dir = kDefaultRunDir;
  if (words.size() >= 2 && words[0] == "--run-dir") {
    run_dir = words[1];
    words.erase(words.begin(), words.begin() + 2);
  }
  if (words.size() == 1 && words[0] == "poststop") {
    poststop(run_dir);
    return 0;
  }
  const auto wish = wish_in(words);
  if (!wish) {
    complain(kUsage);
    return 2;
  }
  const auto done = create_runtime(*wish, run_dir);
  if (!done) complain(done.error().message());
  return done ? 0 : 1;
}

int run(int argc, char** argv) {
  const std::string_view self = argc > 0 ? argv[0] : "";
  std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  if (!self.ends_with("vrdma-runtime")) return run_hook(std::move(words));
  const auto program = own_path();
  complain(program ? run_runtime(words, *program).message() : program.error().message());
  return 1;
}

}  // namespace
}  // namespace vrdma::cli::hook

int main(int argc, char** argv) { return vrdma::cli::hook::run(argc, argv); }
