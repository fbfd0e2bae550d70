#include "core/base/netns_cookie.h"
#include "tests/unit/cli/vrdmactl_fixture.h"

namespace vrdma::cli {

const char* const kVrdmactl = VRDMACTL;
const char* const kFakeVrdmad = FAKE_VRDMAD;

namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST_F(Vrdmactl, tells_when_there_is_no_daemon) {
  expect_failure({"vdev", "list"}, 1, nobody_in(run_dir()));
  ::unsetenv("VRDMA_RUN_DIR");
  expect_failure({"--run-dir", "/nowhere", "watch"}, 1, nobody_in("/nowhere"));
  const Ran ran = run({"version", "--run-dir", "/nowhere"});
  EXPECT_EQ(ran.status, 1);
  EXPECT_EQ(ran.out, "vrdmactl " VRDMA_VERSION "\n");
  EXPECT_THAT(ran.err, HasSubstr(nobody_in("/nowhere")));
}

TEST_F(Vrdmactl, a_change_of_nothing_is_refused) {
  start_daemon();
  for (const char* whose : {"tenant", "parent"})
    expect_failure({whose, "set", "red"}, 1,
                   "nothing to change: give --default, --ceiling or --overcommit");
}

TEST_F(Vrdmactl, short_words_mean_the_same) {
  start_daemon();
  EXPECT_EQ(run({"vdev", "ls", "-j"}).out, "[]\n");
  EXPECT_EQ(run({"--json", "vdev", "list"}).out, run({"-o", "json", "vdev", "list"}).out);
  expect_failure({"vdev", "rm", "x"}, 1, "no vdevice is named x");
}

TEST_F(Vrdmactl, a_shell_learns_its_environment) {
  const std::string here = "/a b'c";
  const Ran ran = run({"--run-dir", here, "env"});
  EXPECT_EQ(ran.status, 0);
  EXPECT_THAT(ran.out, HasSubstr("/lib/vrdma'${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\n"));
  EXPECT_THAT(ran.out, HasSubstr("export VRDMA_RUN_DIR='/a b'\\''c'\n"));
  EXPECT_THAT(run({"--run-dir", "there", "env"}).out, HasSubstr("export VRDMA_RUN_DIR='/"));
}

TEST_F(Vrdmactl, a_wrong_command_line_is_status_2) {
  EXPECT_THAT(run({}).err, StartsWith("vrdmactl: a command is missing; there are vdev, quota, "));
  expect_failure(
      {"vdev"}, 2,
      "the command of 'vdev' is missing; there are create, list, show, label, export, delete");
  EXPECT_EQ(run({"frob"}).status, 2);
  EXPECT_THAT(run({"frob"}).err, HasSubstr("there is no command 'frob'; there are vdev, quota, "));
  expect_failure(
      {"vdev", "frob"}, 2,
      "there is no command 'frob' in 'vdev'; there are create, list, show, label, export, delete");
  expect_failure({"exec", "red0", "true"}, 2,
                 "exec: give the program after --, as in 'vrdmactl exec NAME -- ibv_devinfo'");
  expect_failure({"vdev", "list", "--tennant", "red"}, 2,
                 "there is no option '--tennant' in 'list'; do you mean --tenant?; see --help");
  expect_failure({"vdev", "list", "--tenant"}, 2, "--tenant wants a value: TENANT");
  expect_failure({"vdev", "list", "--tenant", "a", "--tenant", "b"}, 2,
                 "--tenant is given 2 times: once is enough");
  expect_failure({"vdev", "delete"}, 2, "NAME is required");
  expect_failure({"parent", "list", "x"}, 2, "'x' is one argument too many for 'list'; see --help");
  EXPECT_THAT(run({"-j", "--run-dir", "/r", "help", "vdev"}).out, HasSubstr("create"));
  EXPECT_THAT(run({"help", "nope"}).err, HasSubstr("there is no command 'nope'"));
  expect_failure({"vdev", "delete", ""}, 2, "NAME: it is empty");
  expect_failure({"vdev", "create", "-x"}, 2, "there is no option '-x' in 'create'; see --help");
  expect_failure({"doctor", "--to", ""}, 2, "--to: it is empty");
  expect_failure({"top", "--interval", "nan"}, 2, "--interval: 'nan' is not 0.05 to 3600 seconds");
  expect_failure({"tenant", "set", "red", "--overcommit", "50%"}, 2,
                 "--overcommit: '50' is not 100 to 100000 percent");
  expect_failure({"vdev", "create", "red0", "--netns", "a"}, 2, "--netdev is required");
  expect_failure({"quota", "set", "red0"}, 2, "QUOTA is required");
  EXPECT_THAT(run({"quota", "set", "red0", "qp=x"}).err,
              HasSubstr("quota qp: 'x' is not a number such as 64, 16k or max"));
  EXPECT_EQ(run({"quota", "set", "red0", "qp=x"}).status, 2);
  expect_failure({"-o", "xml", "vdev", "list"}, 2, "--output: 'xml' is not one of table, json");
  EXPECT_EQ(run({"exec", "red0"}).status, 2);
  EXPECT_EQ(run({"exec", "red0", "--"}).status, 2);
  EXPECT_EQ(run({"exec", "--", "true"}).status, 2);
}

TEST_F(Vrdmactl, helps_without_a_daemon) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--help"}, {"vdev", "--help"}, {"vdev", "create", "-h"}}) {
    const Ran ran = run(words);
    EXPECT_EQ(ran.status, 0);
    EXPECT_THAT(ran.out, HasSubstr("Usage:"));
    EXPECT_EQ(ran.err, "");
  }
  EXPECT_THAT(run({"help"}).out, HasSubstr("Usage:"));
  EXPECT_THAT(run({"quota", "--help"}).out,
              HasSubstr("a number of bytes (512m, 1.5g, 16GB, max): mr_bytes"));
  EXPECT_EQ(run({"--version"}).out, "vrdmactl " VRDMA_VERSION "\n");
  EXPECT_THAT(run({"completion", "bash"}).out, HasSubstr("complete -F _vrdmactl vrdmactl"));
  EXPECT_THAT(run({"completion", "zsh"}).out, StartsWith("#compdef vrdmactl"));
  EXPECT_THAT(run({"completion", "fish"}).out, HasSubstr("complete -c vrdmactl"));
}

// Without a sanitizer, the hook is built beside the libraries.
#ifdef HOOK
TEST_F(Vrdmactl, generates_the_cdi_specification_without_a_daemon) {
  const std::string classes = temp_ + "/classes.conf";
  std::ofstream(classes) << "[small]\nquota = \"qp=8\"\n";
  const Ran ran = run({"cdi", "generate", "-o", "-", "--classes", classes});
  EXPECT_EQ(ran.err, "");
  EXPECT_EQ(ran.status, 0);
  EXPECT_THAT(ran.out, HasSubstr("\"cdiVersion\": \"0.3.0\""));
  EXPECT_THAT(ran.out, HasSubstr("\"name\": \"default\""));
  EXPECT_THAT(ran.out, HasSubstr("\"name\": \"small\""));
  EXPECT_THAT(ran.out, HasSubstr(fs::canonical(HOOK).string()));
  const std::string file = temp_ + "/cdi/vrdma.json";
  EXPECT_EQ(run({"cdi", "generate", "--output", file, "--classes", classes}).out, "");
  EXPECT_EQ(content_of(file), ran.out);
  std::ofstream(classes) << "[small]\ncolour = red\n";
  EXPECT_EQ(run({"cdi", "generate", "-o", file, "--classes", classes}).status, 1);
  EXPECT_EQ(content_of(file), ran.out);
}
#endif

TEST_F(Vrdmactl, drives_the_daemon) {
  start_daemon();
  create("red0");
  create("blue0");
  EXPECT_THAT(run({"vdev", "list"}).out, StartsWith("NAME   STATE"));
  EXPECT_THAT(run({"vdev", "list"}).out, HasSubstr("\nblue0  ACTIVE"));
  EXPECT_THAT(run({"vdev", "show", "red0"}).out, StartsWith("red0\n    parent         soft\n"));
  EXPECT_EQ(run({"quota", "set", "red0", "qp=1k,mr=max", "mr_bytes=3g"}).status, 0);
  const Ran quota = run({"quota", "show", "red0"});
  EXPECT_EQ(quota.out,
            "VDEVICE  KIND      USED  LIMIT\n"
            "red0     qp           2   1024\n"
            "red0     mr           0    max\n"
            "red0     mr_bytes     0     3G\n");
  EXPECT_THAT(run({"quota", "show", "red0", "--bytes"}).out, HasSubstr("  3221225472\n"));
  EXPECT_THAT(run({"quota", "show", "red0", "-j"}).out, HasSubstr("\"limit\": 3221225472"));
  EXPECT_THAT(run({"gid", "list", "red0"}).out, HasSubstr("red0         1  ::ffff:10.0.0.1"));
  EXPECT_THAT(run({"parent", "list"}).out, HasSubstr("soft  built in         2"));
  EXPECT_THAT(run({"stats", "red0"}).out, HasSubstr("red0   sessions         7"));
  EXPECT_THAT(run({"stats"}).out, HasSubstr("admin_clients"));
  EXPECT_EQ(
      run({"conn", "list", "red0"}).out,
      "VDEVICE  TENANT  TYPE  STATE        LOCAL          REMOTE           QPN  TRANSPORT  AGE\n"
      "red0     vdev/1  tcp   LISTEN       *:7471         -                  -  -            -\n"
      "red0     vdev/1  RC    ESTABLISHED  10.0.0.1:7471  [fd00::2]:40000   17  mediated    2h\n");
  EXPECT_THAT(run({"conn", "list", "-o", "json"}).out,
              AllOf(StartsWith("[\n  {\n    \"vdev\": \"red0\""),
                    HasSubstr("\"remote_port\": 40000"), HasSubstr("\"age_ms\": 7300000")));
  EXPECT_EQ(
      run({"qp", "list", "red0"}).out,
      "VDEVICE  QPN   PID  TYPE  STATE  TRANSPORT        PEER      PEER-QPN  RTT  WINDOW  LOSSES  "
      "RNR  RESENT\n"
      "red0      17  4711  UD    RTS    mediated (type)  -                -    -       -       -  "
      "  -       -\n"
      "red0      18  4711  RC    RTS    network          10.0.0.2        19  120     256      18  "
      "  8      90\n");
  EXPECT_THAT(
      run({"qp", "list", "-o", "json"}).out,
      AllOf(StartsWith("[\n  {\n    \"vdev\": \"red0\""), HasSubstr("\"because\": \"type\""),
            HasSubstr("\"transport\": \"network\""), HasSubstr("\"rate\": 1000000")));
  EXPECT_EQ(run({"conn", "stats", "red0"}).out,
            "SCOPE  COUNTER      VALUE\n"
            "red0   cm_sent_req      5\n");
  EXPECT_THAT(run({"version"}).out, StartsWith("vrdmactl " VRDMA_VERSION "\nvrdmad   "));
  // -o json is accepted after any word.
  EXPECT_THAT(run({"-o", "json", "vdev", "list"}).out,
              StartsWith("[\n  {\n    \"name\": \"blue0\""));
  EXPECT_THAT(run({"vdev", "-o", "json", "list"}).out, StartsWith("[\n"));
  EXPECT_THAT(run({"vdev", "show", "red0", "--output=json"}).out, StartsWith("[\n"));
  EXPECT_THAT(run({"vdev", "show", "red0"}).out, Not(HasSubstr("allowed")));
  EXPECT_THAT(run({"vdev", "show", "red0"}).out, HasSubstr("\n    traffic        direct between"));
  EXPECT_EQ(run({"quota", "show", "--cgroup", "red0"}).out,
            "CGROUP    VDEVICE  KIND  USED\n"
            "/lo/red0  red0     qp       2\n");
  EXPECT_THAT(run({"quota", "show", "--cgroup", "-o", "json"}).out,
              StartsWith("[\n  {\n    \"cgroup\": \"/lo/red0\""));
  EXPECT_EQ(run({"vdev", "create", "raw0", "--netns", "a", "--netdev", "eth0", "--allow",
                 "raw-packet,frogs", "--allow", "toads"})
                .status,
            0);  // the daemon knows the kinds
  EXPECT_THAT(run({"vdev", "show", "raw0"}).out,
              HasSubstr("\n    allowed        raw-packet, frogs, toads\n"));
  EXPECT_EQ(run({"vdev", "delete", "red0", "blue0", "raw0"}).status, 0);
  EXPECT_EQ(run({"vdev", "list", "-o", "json"}).out, "[]\n");
  EXPECT_EQ(stop_daemon(), 0);
}

TEST_F(Vrdmactl, prints_the_daemons_sentence_and_ends_with_1) {
  start_daemon();
  create("red0");
  const auto try_create = [](const char* name, const std::string& netns, const char* dev) {
    return std::vector<std::string>{"vdev", "create", name, "--netns", netns, "--netdev", dev};
  };
  expect_failure(try_create("red0", own_netns(), "eth0"), 1, "vdevice red0 exists already");
  expect_failure(try_create("x", "/proc/self/ns/net", "eth0"), 1,
                 "netns '/proc/self/ns/net' would be that of vrdmad, which opens the path: name a "
                 "process of the namespace, as in pid:42");
  expect_failure(try_create("x", "missing", "eth0"), 1, "netns missing: No such file");
  expect_failure(try_create("x", "a", "missing"), 1, "netns a has no netdev missing");
  expect_failure({"vdev", "show", "x"}, 1, "no vdevice is named x");
  expect_failure({"vdev", "show", "x\n\x1b[2J"}, 1, "no vdevice is named x??[2J");
  expect_failure({"vdev", "delete", "x"}, 1, "no vdevice is named x");
  expect_failure({"stats", "x"}, 1, "no vdevice is named x");
  expect_failure({"stats", "tenant/x"}, 1, "there is no tenant 'x' with vdevices");
  expect_failure({"conn", "list", "x"}, 1, "no vdevice is named x");
  expect_failure({"conn", "stats", "x"}, 1, "no vdevice is named x");
  expect_failure({"qp", "list", "x"}, 1, "no vdevice is named x");
  expect_failure({"exec", "x", "--", "true"}, 125, "no vdevice is named x");
  expect_failure({"quota", "set", "red0", "frogs=1"}, 1, "quota of an unknown kind: frogs");
  expect_failure({"quota", "set", "red0", "qp=1"}, 1, "vdevice red0 has 2 qp in use, more than 1");
}

TEST_F(Vrdmactl, tells_vdevices_of_one_name_apart) {
  start_daemon();
  const auto create_in = [&](const char* netns, std::vector<std::string> more = {}) {
    std::vector<std::string> words{"vdev", "create", "mlx5_0", "--netns", netns, "--netdev", "e"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  EXPECT_EQ(create_in("red", {"--owner", "42", "--end-with-owner", "--label", "pod=a", "--label",
                              "note=x=y"})
                .status,
            0);
  EXPECT_THAT(run({"quota", "show", "mlx5_0"}).out, HasSubstr("\nmlx5_0   qp "));
  EXPECT_EQ(create_in("blue").status, 0);
  EXPECT_THAT(run({"quota", "show"}).out,
              AllOf(HasSubstr("\nred/mlx5_0   qp "), HasSubstr("\nblue/mlx5_0  qp ")));
  EXPECT_THAT(run({"quota", "show", "red/mlx5_0"}).out, HasSubstr("\nmlx5_0   qp "));
  EXPECT_THAT(run({"gid", "list"}).out, HasSubstr("\nblue/mlx5_0      0"));
  EXPECT_THAT(run({"conn", "list"}).out, HasSubstr("\nred/mlx5_0   vdev/1  tcp"));
  EXPECT_THAT(run({"quota", "show", "--cgroup"}).out, HasSubstr("  red/mlx5_0   qp"));
  EXPECT_THAT(run({"stats"}).out,
              AllOf(HasSubstr("\nred/mlx5_0   sessions"), HasSubstr("\nblue/mlx5_0  sessions")));
  EXPECT_THAT(run({"stats", "blue/mlx5_0"}).out, HasSubstr("\nmlx5_0  sessions"));
  EXPECT_THAT(run({"stats", "-o", "json"}).out,
              AllOf(HasSubstr("\"vdev_id\": 2"), HasSubstr("\"netns\": \"blue\"")));
  EXPECT_THAT(run({"vdev", "list"}).out, HasSubstr("\nmlx5_0  ACTIVE  blue"));
  EXPECT_THAT(run({"vdev", "show", "red/mlx5_0"}).out,
              AllOf(HasSubstr("\n    id             1\n"),
                    HasSubstr("\n    owner          process 42; the vdevice ends with it\n"),
                    HasSubstr("\n    label          note=x=y\n    label          pod=a\n")));
  EXPECT_THAT(run({"vdev", "show", "red/mlx5_0", "-o", "json"}).out,
              AllOf(HasSubstr("\"owner\": {\n      \"pid\": 42"),
                    HasSubstr("\"end_with_owner\": true"), HasSubstr("\"note\": \"x=y\"")));
  EXPECT_THAT(run({"vdev", "show", "blue/mlx5_0", "-o", "json"}).out,
              AllOf(HasSubstr("\"owner\": null"), HasSubstr("\"labels\": {}")));
  EXPECT_THAT(run({"top", "--once", "--interval", "0.05"}).out, HasSubstr("\nred/mlx5_0 "));
  expect_failure({"vdev", "show", "mlx5_0"}, 1, "several vdevices are named mlx5_0");
  EXPECT_EQ(create_in("blue").status, 1);
  EXPECT_EQ(create_in("blue", {"--if-absent"}).status, 0);
  EXPECT_EQ(run({"vdev", "delete", "red/mlx5_0"}).status, 0);
  EXPECT_THAT(run({"vdev", "show", "mlx5_0"}).out, HasSubstr("\n    id             2\n"));
}

TEST_F(Vrdmactl, complains_of_owners_and_labels_that_are_none) {
  const auto create = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"vdev", "create", "x", "--netns", "a", "--netdev", "e"});
    return more;
  };
  EXPECT_EQ(run(create({"--owner", "0"})).status, 2);
  EXPECT_EQ(run(create({"--owner", "self"})).status, 2);
  expect_failure(create({"--end-with-owner"}), 2, "--end-with-owner requires --owner");
  expect_failure(create({"--label", "pod"}), 1, "label 'pod' is not KEY=VALUE");
  expect_failure(create({"--label", "a=1", "--label", "a=2"}), 1, "label 'a' is given twice");
}

TEST_F(Vrdmactl, sets_and_shows_budgets) {
  start_daemon();
  EXPECT_EQ(run({"tenant", "set", "red", "--default", "qp=8", "--ceiling", "mr=2k,mw=max",
                 "--overcommit", "150"})
                .out,
            "");
  EXPECT_EQ(run({"parent", "set", "soft", "--ceiling", "qp=64"}).status, 0);
  EXPECT_EQ(run({"tenant", "show"}).out,
            "NAME  OVERCOMMIT  VDEVICES  KIND  DEFAULT  CEILING  GIVEN  USED\n"
            "red         150%         0  qp          8        -      2     1\n"
            "red         150%         0  mr          -     2048      2     1\n"
            "red         150%         0  mw          -      max      2     1\n");
  EXPECT_THAT(run({"parent", "show", "soft", "-o", "json"}).out,
              AllOf(StartsWith("[\n  {\n    \"name\": \"soft\",\n    \"overcommit\": 100"),
                    HasSubstr("\"default\": null"), HasSubstr("\"ceiling\": 64")));
  expect_failure({"tenant", "show", "blue"}, 1,
                 "no budget is set for tenant 'blue', and it has no vdevices");
  expect_failure({"tenant", "set", "red", "--ceiling", "qp=1"}, 1, "tenant red: 2 qp are in use");
  EXPECT_EQ(run({"tenant", "set", "red", "--overcommit", "99"}).status, 2);
  EXPECT_EQ(run({"tenant", "set", "red", "--default", "qp"}).status, 2);
}

TEST_F(Vrdmactl, parks_a_process) {
  start_daemon();
  EXPECT_EQ(run({"checkpoint", "park", "4711"}).out,
            "process 4711 is parked, with 1 session of red0 and its use of rdma_cm\n");
  const Ran json = run({"-j", "checkpoint", "park", "4711"});
  for (const char* const part : {"\"pid\": 4711", "\"token\": \"6f1a\"", "\"arena\": 1", "\"6\": 7",
                                 "\"socket\": \"/run/rdma_cm\""})
    EXPECT_NE(json.out.find(part), std::string::npos) << json.out;
  EXPECT_NE(json.out.find("\"away\": true"), std::string::npos) << json.out;
  EXPECT_EQ(run({"-j", "checkpoint", "show", "6f1a"}).out, json.out);
  for (const char* const step : {"detach", "resume", "abandon"})
    EXPECT_EQ(run({"checkpoint", step, "4711"}).status, 0) << step;
  const Ran unknown = run({"checkpoint", "resume", "4712"});
  EXPECT_EQ(unknown.status, 1);
  EXPECT_EQ(unknown.err, "vrdmactl: no such process\n");
  EXPECT_EQ(run({"checkpoint", "park", "none"}).status, 2);
  EXPECT_EQ(run({"checkpoint", "park"}).status, 2);
  const std::string path = temp_ + "/parked.json";
  std::ofstream(path) << json.out;
  EXPECT_EQ(run({"checkpoint", "attach", path}).status, 0);
  std::ofstream(path) << "[]";
  const Ran other = run({"checkpoint", "attach", path});
  EXPECT_EQ(other.status, 1);
  EXPECT_NE(other.err.find("this is not what 'vrdmactl checkpoint park -j' prints"),
            std::string::npos)
      << other.err;
  EXPECT_EQ(run({"checkpoint", "attach", path + "x"}).status, 1);
}

TEST_F(Vrdmactl, lists_and_deletes_claims) {
  start_daemon();
  EXPECT_EQ(run({"claim", "list"}).out,
            "CLAIM  NAMESPACE/NAME  SHARE  CLASS  QUOTA  VDEVICES\n"
            "held   bank/ledger     data   small  qp=8          1\n");
  expect_failure({"claim", "delete", "held"}, 1, "claim 'held' is held");
  EXPECT_EQ(run({"claim", "delete"}).status, 2);
  EXPECT_EQ(run({"claim", "delete", ""}).status, 2);
  EXPECT_EQ(run({"claim", "delete", "unknown"}).status, 0);
  EXPECT_EQ(run({"claim", "delete", "held", "--force"}).out, "");
  EXPECT_EQ(run({"claim", "list", "-o", "json"}).out, "[]\n");
}

TEST_F(Vrdmactl, sets_and_lists_fabrics) {
  start_daemon();
  create("red0");
  EXPECT_EQ(run({"fabric", "set", "far", "--reach", "network"}).out, "");
  EXPECT_EQ(run({"fabric", "list"}).out,
            "NAME    REACH    VDEVICES  GIDS  PEERS\n"
            "far     network         0     0  all\n"
            "vdev/1  host            1     2  all\n");
  EXPECT_EQ(run({"fabric", "set", "far", "--peers", "10.1.2.3/8,fd00::1"}).out, "");
  EXPECT_EQ(run({"fabric", "list", "far"}).out,
            "NAME  REACH    VDEVICES  GIDS  PEERS\n"
            "far   network         0     0  10.0.0.0/8, fd00::1/128\n");
  EXPECT_EQ(run({"fabric", "set", "far", "--peers", "all"}).out, "");
  EXPECT_THAT(run({"fabric", "set", "far", "--reach", "host", "-o", "json"}).out,
              HasSubstr("\"reach\": \"host\""));
  expect_failure({"fabric", "list", "blue"}, 1, "fabric 'blue' has no settings and no vdevices");
  expect_failure({"fabric", "set", "taken", "--reach", "network"}, 1,
                 "GID fd00::1 is held by vdevice a/red0 in fabric red");
  EXPECT_EQ(run({"fabric", "set", "far", "--reach", "moon"}).status, 2);
  expect_failure({"fabric", "set", "far"}, 2, "fabric set: give --reach, --peers, or both");
  EXPECT_EQ(run({"fabric", "set", "--reach", "host"}).status, 2);
}

TEST_F(Vrdmactl, exec_runs_on_our_libraries) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can enter a network namespace";
  start_daemon();
  create("red0");
  // The daemon's directory of vdevices in the netns.
  const auto cookie = vrdma::base::own_netns_cookie();
  ASSERT_TRUE(cookie) << cookie.error().message();
  fs::create_directories(fs::path(run_dir()) / "sysfs" / std::to_string(*cookie));
  ::setenv("LD_LIBRARY_PATH", "/before", 1);
  const Ran ran = run({"exec", "red0", "--", "sh", "-c",
                       "echo $LD_LIBRARY_PATH $VRDMA_RUN_DIR $0 $1; exit 7", "-o", "--help"});
  ::unsetenv("LD_LIBRARY_PATH");
  EXPECT_EQ(ran.status, 7) << ran.err;
  const auto libraries = fs::path(kVrdmactl).parent_path().parent_path() / "lib/vrdma";
  EXPECT_EQ(ran.out, libraries.string() + ":/before " + run_dir() + " -o --help\n");
  expect_failure({"exec", "red0", "--", "/nowhere/x"}, 127,
                 "cannot run /nowhere/x: No such file or directory");
  expect_failure({"exec", "red0", "--", "/dev/null"}, 126,
                 "cannot run /dev/null: Permission denied");
}

TEST_F(Vrdmactl, exec_notices_that_the_netns_is_another_one) {
  start_daemon();
  // The fake's cookie for a netns that it cannot open belongs to no netns.
  const std::string name = temp_ + "/netns";
  ASSERT_EQ(run({"vdev", "create", "red0", "--netns", name, "--netdev", "lo"}).status, 0);
  expect_failure({"exec", "red0", "--", "true"}, 125,
                 "netns of vdevice red0: open " + name + ": No such file or directory");
  fs::create_symlink("/proc/self/ns/net", name);
  expect_failure({"exec", "red0", "--", "true"}, 125,
                 "netns of vdevice red0: " + name + " is another one by now");
}

TEST_F(Vrdmactl, an_idle_daemon_has_one_thread_and_sleeps) {
  start_daemon();
  const size_t idle_tasks = 1;
  ASSERT_EQ(daemon_tasks(), 1U);
  create("red0");
  const pid_t watcher =
      spawn({kVrdmactl, "watch", "-o", "json"}, temp_ + "/watched", temp_ + "/watch.err");
  for (int i = 0; i < 500 && content_of(temp_ + "/watched").empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_THAT(content_of(temp_ + "/watched"), StartsWith("{\"type\":\"added\""));
  EXPECT_GT(daemon_tasks(), idle_tasks) << "gRPC's threads run while a client watches";
  ::kill(watcher, SIGINT);
  ::waitpid(watcher, nullptr, 0);
  // The library's own end after kGrpcEndsAfter included (api/keep_grpc.h).
  for (int i = 0; i < 3000 && daemon_tasks() > idle_tasks; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(daemon_tasks(), idle_tasks);
  // On a busy machine it may still be on its way into epoll_wait(2). One that polls never sleeps
  // for a second.
  bool sleeps = false;
  for (int i = 0; i < 10 && !sleeps; ++i) {
    const std::string before = daemon_status("voluntary_ctxt_switches");
    std::this_thread::sleep_for(std::chrono::milliseconds(1000));
    sleeps = daemon_status("voluntary_ctxt_switches") == before;
  }
  EXPECT_TRUE(sleeps);
}

TEST_F(Vrdmactl, watch_ends_when_the_daemon_does) {
  start_daemon();
  create("red0");
  const pid_t watcher = spawn({kVrdmactl, "watch"}, temp_ + "/watched", temp_ + "/watch.err");
  for (int i = 0; i < 500 && content_of(temp_ + "/watched").empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(stop_daemon(), 0);
  int status = 0;
  ::waitpid(watcher, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_EQ(content_of(temp_ + "/watch.err"),
            "vrdmactl: vrdmad closed the connection: it stopped, or does not accept this user\n");
  EXPECT_FALSE(fs::exists(run_dir() + "/admin.sock"));
}

TEST_F(Vrdmactl, a_crashed_daemon_is_replaced) {
  start_daemon();
  ::kill(daemon_, SIGKILL);
  ::waitpid(daemon_, nullptr, 0);
  expect_failure({"vdev", "list"}, 1, nobody_in(run_dir()));
  start_daemon();
  EXPECT_EQ(run({"vdev", "list"}).status, 0);
}

}  // namespace
}  // namespace vrdma::cli
