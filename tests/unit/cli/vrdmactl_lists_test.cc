// What vrdmactl lists, waits for and completes.
#include "tests/unit/cli/vrdmactl_fixture.h"

namespace vrdma::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST_F(Vrdmactl, lists_what_fits) {
  start_daemon();
  const auto create_in = [&](const char* name, const char* netns, const char* tenant,
                             const char* label) {
    const Ran ran = run({"vdev", "create", name, "--netns", netns, "--netdev", "e", "--tenant",
                         tenant, "--fabric", "f", "--label", label});
    EXPECT_EQ(ran.status, 0) << ran.err;
  };
  create_in("a", "n1", "red", "class=small");
  create_in("a", "n2", "red", "class=big");
  create_in("b", "n1", "blue", "class=big");
  const auto names = [&](std::vector<std::string> filter) {
    filter.insert(filter.begin(), {"vdev", "list", "-q"});
    const Ran ran = run(filter);
    EXPECT_EQ(ran.status, 0) << ran.err;
    return ran.out;
  };
  EXPECT_EQ(names({}), "n1/a\nn2/a\nb\n");
  EXPECT_EQ(names({"--tenant", "red"}), "n1/a\nn2/a\n");
  EXPECT_EQ(names({"--netns", "n1"}), "n1/a\nb\n");
  EXPECT_EQ(names({"--label", "class=big", "--tenant", "red"}), "n2/a\n")
      << "unique among all vdevices, not among those that are listed";
  EXPECT_EQ(names({"--label", "class", "--fabric", "f", "--state", "active"}), "n1/a\nn2/a\nb\n");
  EXPECT_EQ(names({"--state", "down"}), "");
  EXPECT_EQ(names({"n2/a", "--tenant", "blue"}), "");
  EXPECT_EQ(run({"vdev", "list", "--columns", "id,labels", "--tenant", "red"}).out,
            "ID  LABELS\n 1  class=small\n 2  class=big\n");
  EXPECT_EQ(run({"vdev", "list", "-j", "-q", "--tenant", "blue"}).out, "[\n  \"b\"\n]\n");
  EXPECT_THAT(run({"quota", "show", "--tenant", "blue"}).out,
              AllOf(HasSubstr("\nb        qp "), Not(HasSubstr("a  "))));
  EXPECT_THAT(run({"gid", "list", "--netns", "n2", "--columns", "netns,index"}).out,
              AllOf(HasSubstr("\nn2 "), Not(HasSubstr("n1"))));
  EXPECT_EQ(run({"qp", "list", "--label", "class=small", "--columns", "vdevice,qpn,bytes"}).out,
            "VDEVICE  QPN  BYTES\na         17      0\na         18     4K\n");
  EXPECT_EQ(run({"qp", "list", "--state", "err", "-j"}).out, "[]\n");
  EXPECT_EQ(
      run({"conn", "list", "--tenant", "blue", "--state", "listen", "--columns", "vdevice"}).out,
      "VDEVICE\nb\n");
  EXPECT_EQ(run({"top", "--once", "--interval", "0.05", "--netns", "n2", "--columns", "id"}).out,
            "ID\n 2\n");
  EXPECT_EQ(run({"top", "-p", "--once", "--interval", "0.05", "--tenant", "blue", "--columns",
                 "vdevice,pid,qps"})
                .out,
            "VDEVICE   PID  QPS\nb        4711    2\n");
  EXPECT_THAT(run({"top", "-p", "--once", "--interval", "0.05", "-j", "--tenant", "blue"}).out,
              AllOf(HasSubstr("\"pid\":4711"), HasSubstr("\"refused_by\":{}")));
  expect_failure({"vdev", "list", "--state", "up"}, 2,
                 "--state: 'UP' is not one of ACTIVE, DOWN, LOST, PENDING");
  expect_failure({"vdev", "list", "--label", "=x"}, 2, "--label: '=x' is not KEY or KEY=VALUE");
  expect_failure(
      {"top", "--sort", "colour"}, 2,
      "--sort: 'colour' is not one of bytes, requests, refused, sessions, qps, name, tenant");
}

TEST_F(Vrdmactl, errors_are_json_for_programs) {
  const auto error_of = [&](const std::vector<std::string>& words, int status) {
    const Ran ran = run(words);
    EXPECT_EQ(ran.status, status) << ran.err;
    EXPECT_EQ(ran.out, "");
    return ran.err;
  };
  EXPECT_EQ(error_of({"vdev", "frob", "-j"}, 2),
            "{\"error\":\"there is no command 'frob' in 'vdev'; there are create, list, show, "
            "label, export, "
            "delete\",\"errno\":22}\n");
  EXPECT_THAT(error_of({"-o", "json", "vdev", "list"}, 1), HasSubstr("\"errno\":111}"));
  start_daemon();
  EXPECT_EQ(error_of({"vdev", "show", "x\n\"", "--json"}, 1),
            "{\"error\":\"no vdevice is named x\\n\\\"\",\"errno\":2}\n");
  EXPECT_EQ(error_of({"--output=json", "exec", "x", "--", "true"}, 125),
            "{\"error\":\"no vdevice is named x\",\"errno\":2}\n");
  EXPECT_THAT(error_of({"exec", "x", "--", "true", "-j"}, 125), StartsWith("vrdmactl: "));
}

TEST_F(Vrdmactl, waits_for_what_happens) {
  start_daemon();
  create("red0");
  EXPECT_EQ(run({"wait", "red0", "--for", "active"}).status, 0);
  EXPECT_EQ(run({"wait", "nobody", "--for", "gone"}).status, 0);
  expect_failure({"wait", "red0", "later", "--for", "active", "--timeout", "0.2"}, 1,
                 "the time is over: vdevice 'later' does not exist");
  expect_failure({"wait", "red0", "--for", "gone", "--timeout", "0.1"}, 1,
                 "the time is over: vdevice 'red0' is ACTIVE");
  expect_failure({"wait", "red0"}, 2, "--for is required");
  expect_failure({"wait", "red0", "--for", "coffee"}, 2,
                 "--for: 'coffee' is not one of active, gone");
  const auto end_of = [&](pid_t waiter) {
    int status = -1;
    ::waitpid(waiter, &status, 0);
    return status;
  };
  const std::string out = temp_ + "/waited", err = temp_ + "/wait.err";
  // The end of a thread of the daemon's would be no proof that it waits: it may begin late.
  pid_t waiter = spawn({kVrdmactl, "wait", "red0", "late0", "--for", "active"}, out, err);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  create("late0");
  EXPECT_EQ(end_of(waiter), 0) << content_of(err);
  waiter = spawn({kVrdmactl, "wait", "late0", "red0", "--for", "gone"}, out, err);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(run({"vdev", "delete", "late0", "red0"}).status, 0);
  create("red0");  // which is another one
  EXPECT_EQ(end_of(waiter), 0) << content_of(err);
  waiter = spawn({kVrdmactl, "wait", "red0", "--for", "gone"}, out, err);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(stop_daemon(), 0);
  EXPECT_EQ(WEXITSTATUS(end_of(waiter)), 1);
  EXPECT_THAT(content_of(err), HasSubstr("vrdmad "));
}

TEST_F(Vrdmactl, zsh_and_fish_complete_too) {
  start_daemon();
  create("red0");
  const std::string path = "PATH=" + fs::path(kVrdmactl).parent_path().string() + ":$PATH";
  const auto output_of = [&](const std::string& shell, const std::string& script) {
    std::ofstream(temp_ + "/script") << script;
    const pid_t child =
        spawn({"/usr/bin/env", shell, temp_ + "/script"}, temp_ + "/out", temp_ + "/err");
    ::waitpid(child, nullptr, 0);
    return content_of(temp_ + "/out") + content_of(temp_ + "/err");
  };
  if (output_of("zsh", "echo yes") != "yes\n" || output_of("fish", "echo yes") != "yes\n")
    GTEST_SKIP() << "there is no zsh, or no fish";
  const auto zsh = [&](const std::string& words, int current) {
    return output_of("zsh",
                     "export " + path +
                         "\n_describe() { print -l -- $candidates }\n_files() { print files $1 }\n"
                         "_normal() { print normal $words[1] $CURRENT }\n"
                         "source <(vrdmactl completion zsh)\n"
                         "words=(" +
                         words + ") CURRENT=" + std::to_string(current) +
                         " PREFIX=$words[CURRENT]\n_vrdmactl\n");
  };
  EXPECT_EQ(zsh("vrdmactl vdev show ''", 4), "red0\n");
  EXPECT_EQ(zsh("vrdmactl vdev cre", 3), "create:create a vdevice on a netdev\n");
  EXPECT_EQ(zsh("vrdmactl exec red0 -- ibv", 5), "normal ibv 1\n");
  EXPECT_EQ(zsh("vrdmactl --run-dir /t", 3), "files -/\n");
  const auto fish = [&](const std::string& line) {
    return output_of("fish", "set -x " + ("PATH " + fs::path(kVrdmactl).parent_path().string()) +
                                 " $PATH\nvrdmactl completion fish | source\ncomplete -C '" + line +
                                 "'\n");
  };
  EXPECT_EQ(fish("vrdmactl vdev show "), "red0\n");
  EXPECT_EQ(fish("vrdmactl vdev cre"), "create\tcreate a vdevice on a netdev\n");
  EXPECT_THAT(fish("vrdmactl exec red0 -- tru"), HasSubstr("true"));
}

TEST_F(Vrdmactl, bash_completes_words_and_names) {
  start_daemon();
  create("red0");
  create("blue0");
  const std::string script = temp_ + "/complete.bash";
  std::ofstream(script)
      << "export PATH=" << fs::path(kVrdmactl).parent_path().string()
      << ":$PATH\n"
         "source <(vrdmactl completion bash)\n"
         "COMP_WORDS=(\"$@\") COMP_CWORD=$(($# - 1)) COMP_LINE=\"$*\" COMP_POINT=1000\n"
         "_vrdmactl\n"
         "echo \"${COMPREPLY[@]}\"\n";
  const auto complete = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"/bin/bash", script, "vrdmactl"});
    const pid_t child = spawn(words, temp_ + "/out", temp_ + "/err");
    ::waitpid(child, nullptr, 0);
    return content_of(temp_ + "/out") + content_of(temp_ + "/err");
  };
  EXPECT_EQ(complete({"v"}), "vdev version\n");
  EXPECT_EQ(complete({"vdev", ""}), "create list show label export delete\n");
  EXPECT_EQ(complete({"vdev", "show", ""}), "blue0 red0\n");
  EXPECT_EQ(complete({"-o", "json", "quota", "set", "r"}), "red0\n");
  ASSERT_EQ(run({"vdev", "create", "red0", "--netns", "other", "--netdev", "lo"}).status, 0);
  EXPECT_EQ(complete({"vdev", "show", ""}), "blue0 other/red0 " + own_netns() + "/red0\n");
  EXPECT_EQ(complete({"vdev", "show", own_netns().substr(0, 5)}), own_netns().substr(4) + "/red0\n")
      << "bash replaces what follows the colon";
  EXPECT_EQ(complete({"exec", "other/"}), "other/red0\n");
  EXPECT_EQ(complete({"vdev", "create", "x", "--end"}), "--end-with-owner\n");
  EXPECT_EQ(complete({"vdev", "create", "x", "--net"}), "--netns --netdev\n");
  EXPECT_EQ(complete({"-o", ""}), "table json\n");
  EXPECT_EQ(complete({"stats", "d"}), "daemon\n");
  EXPECT_EQ(complete({"conn", ""}), "list stats\n");
  EXPECT_EQ(complete({"claim", ""}), "list delete\n");
  EXPECT_EQ(complete({"claim", "delete", ""}), "held\n");
  EXPECT_EQ(complete({"fabric", ""}), "list set\n");
  EXPECT_EQ(complete({"fabric", "set", "v"}), "vdev/1 vdev/2 vdev/3\n");
  EXPECT_EQ(complete({"fabric", "set", "red", "--r"}), "--reach --run-dir\n");
  EXPECT_EQ(complete({"fabric", "set", "red", "--reach", ""}), "host network wire\n");
  EXPECT_EQ(complete({"fabric", "set", "--reach", "host", "vdev/1"}), "vdev/1\n");
  EXPECT_EQ(complete({"cdi", "generate", "--cl"}), "--classes\n");
  EXPECT_EQ(complete({"cdi", "generate", "-o", temp_ + "/complete.b"}), script + "\n");
  EXPECT_EQ(complete({"conn", "stats", "d"}), "daemon\n");
  EXPECT_EQ(complete({"vdev", "create", "x", "--parent", ""}), "soft\n");
  EXPECT_EQ(complete({"--run-dir", "/nowhere", "vdev", "show", ""}), "\n");
  EXPECT_EQ(complete({"exec", "red0", ""}), "--\n");
  EXPECT_THAT(complete({"exec", "red0", "--", "tru"}), HasSubstr("true"));
}

}  // namespace
}  // namespace vrdma::cli
