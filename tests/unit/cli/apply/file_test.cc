#include "cli/apply/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/apply/export.h"
#include "provisioning/kind.h"

namespace vrdma::cli::apply {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr char kWhole[] = R"(set = "lab"
[fabric.storage]
reach = "network"
peers = ["fd00::/64", "10.1.2.3/8"]
[fabric."tenant/red"]
[parent.soft]
ceiling = { bandwidth = "10gbit", qp = "max" }
[tenant.red]
default = { qp = 64 }
ceiling = { qp = 1000, mr_bytes = "64g" }
overcommit = 150
[[vdev]]
name = "a0"
netns = "/run/netns/red"
netdev = "eth0"
tenant = "red"
fabric = "storage"
quota = { qp = 65, mr_bytes = "1g", mr = "max" }
allow = ["raw-packet", "qp1"]
addresses = ["10.0.0.7/24"]
no_direct = true
gid_layout = "mlx5"
labels = { team = "x", "app/y" = "" }

[[vdev]]
name = "a1"
netns = "/proc/5/ns/net"
netdev = "eth0"
)";

TEST(ApplyFile, all_keys_are_read) {
  const auto [file, mistakes] = parse(kWhole);
  ASSERT_THAT(mistakes, IsEmpty());
  EXPECT_EQ(file.set, "lab");
  ASSERT_THAT(file.fabrics, SizeIs(2));
  EXPECT_EQ(file.fabrics.at("storage").value.reach, "network");
  EXPECT_EQ(file.fabrics.at("storage").value.peers,
            (std::set<std::string>{"10.0.0.0/8", "fd00::/64"}));
  EXPECT_EQ(file.fabrics.at("tenant/red").value.reach, "host");
  const Budget red = file.budgets.at({Scope::kTenant, "red"}).value;
  EXPECT_EQ(red.defaults, (Limits{{"qp", 64}}));
  EXPECT_EQ(red.ceilings, (Limits{{"qp", 1000}, {"mr_bytes", uint64_t{64} << 30}}));
  EXPECT_EQ(red.overcommit, 150u);
  const Budget soft = file.budgets.at({Scope::kParent, "soft"}).value;
  EXPECT_EQ(soft.ceilings, (Limits{{"bandwidth", 1'250'000'000}}));  // "max" is none
  ASSERT_THAT(file.vdevices, SizeIs(2));
  Vdevice a0;
  a0.name = "a0";
  a0.netns = "red";
  a0.netdev = "eth0";
  a0.tenant = "red";
  a0.fabric = "storage";
  a0.quota = {{"qp", 65},
              {"mr_bytes", uint64_t{1} << 30},
              {"mr", provisioning::traits(provisioning::Kind::kMr).ceiling}};
  a0.allow = {"qp1", "raw-packet"};
  a0.addresses = {"10.0.0.0/24"};
  a0.no_direct = true;
  a0.gid_layout = "mlx5";
  a0.labels = {{"team", "x"}, {"app/y", ""}};
  EXPECT_EQ(file.vdevices[0].value, a0);
  EXPECT_EQ(file.vdevices[0].line, 12u);
  EXPECT_EQ(file.vdevices[1].value.netns, "/proc/5/ns/net");
  EXPECT_EQ(file.vdevices[1].line, 25u);
}

TEST(ApplyFile, an_empty_file_is_one_without_objects) {
  const auto [file, mistakes] = parse("# nothing\n");
  EXPECT_THAT(mistakes, IsEmpty());
  EXPECT_EQ(file.set, "default");
  EXPECT_THAT(file.vdevices, IsEmpty());
}

struct Wrong {
  const char* text;
  Line line;
  const char* sentence;  // a part of it
};

class WrongFile : public testing::TestWithParam<Wrong> {};

TEST_P(WrongFile, is_refused_with_its_line) {
  const auto mistakes = parse(GetParam().text).mistakes;
  ASSERT_THAT(mistakes, SizeIs(1));
  EXPECT_EQ(mistakes[0].line, GetParam().line);
  EXPECT_THAT(mistakes[0].sentence, HasSubstr(GetParam().sentence));
}

#define VDEV "[[vdev]]\nname = \"a\"\nnetns = \"n\"\nnetdev = \"e\"\n"
INSTANTIATE_TEST_SUITE_P(
    Table, WrongFile,
    testing::Values(
        Wrong{"\nset = [", 2, "this is no TOML: "}, Wrong{"set = \"a\"\nset = \"b\"", 2, "no TOML"},
        Wrong{"\xff = 1", 1, "this is no TOML"}, Wrong{"[a\n", 1, "this is no TOML"},
        Wrong{"set = \"no name\"", 1, "'no name' is not a valid name"},
        Wrong{"set = 3", 1, "set is a text in quotes"},
        Wrong{"[tennant.red]", 1, "has no key 'tennant'; do you mean tenant?"},
        Wrong{"colour = 1", 1, "has no key 'colour'; there are set, fabric, tenant, parent, vdev"},
        Wrong{"tenant = 1", 1, "tenant is a table: write [tenant.NAME]"},
        Wrong{"[tenant]\nred = 1", 2, "'red' is no table: write [tenant.NAME]"},
        Wrong{"[tenant.\"a b\"]", 1, "tenant 'a b' is not a valid name"},
        Wrong{"[tenant.\"vdev/1\"]", 1, "is not a valid name"},
        Wrong{"[fabric.f]\nreach = \"moon\"", 2, "'moon' is not one of host, network, wire"},
        Wrong{"[fabric.f]\npeers = [\"10.0.0.0/33\"]", 2, "'10.0.0.0/33' is not an address prefix"},
        Wrong{"[fabric.f]\nreech = \"host\"", 2,
              "fabric 'f' has no key 'reech'; do you mean reach?"},
        Wrong{"[fabric.\"vdev/1\"]", 1, "is not a valid name"},
        Wrong{"[tenant.t]\ndefault = 5", 2, "default is a table, such as { qp = 64"},
        Wrong{"[tenant.t]\nceiling = { qps = 5 }", 2, "has no kind 'qps'; do you mean qp?"},
        Wrong{"[tenant.t]\nceiling = { qp = -5 }", 2, "tenant 't': ceiling: "},
        Wrong{"[tenant.t]\nceiling = { qp = 1.5 }", 2, "'qp' is a number, or a text"},
        Wrong{"[tenant.t]\nceiling = { qp = \"1,mr=2\" }", 2, "tenant 't': ceiling: "},
        Wrong{"[tenant.t]\nceiling = { qp = 70000 }", 2, "above the maximum"},
        Wrong{"[tenant.t]\nceiling = { bandwidth_min = 1 }", 2, "bandwidth_min has no ceiling"},
        Wrong{"[tenant.t]\nceiling.qp = 3\ndefault.qp = 4", 3,
              "the default of qp, 4, is above its ceiling, 3"},
        Wrong{"[tenant.t]\novercommit = 99", 2, "overcommit is a number of percent"},
        Wrong{"[tenant.t]\novercommit = \"1\"", 2, "overcommit is a number of percent"},
        Wrong{"vdev = 1", 1, "write [[vdev]]"}, Wrong{"[vdev]\nname = \"a\"", 1, "write [[vdev]]"},
        Wrong{"vdev = [1]", 1, "write [[vdev]]"},
        Wrong{"\n[[vdev]]\nname = \"a\"\nnetns = \"n\"", 2, "vdev 'a' has no netdev"},
        Wrong{VDEV "netnss = \"n\"", 5, "vdev 'a' has no key 'netnss'; do you mean netns?"},
        Wrong{VDEV "tenant = \"a/b\"", 5, "tenant: 'a/b' is not a valid name"},
        Wrong{VDEV "tenant = \"\"", 5, "tenant is a text in quotes"},
        Wrong{VDEV "fabric = \"vdev/1\"", 5, "is not a valid name"},
        Wrong{VDEV "quota = { qp = \"many\" }", 5, "vdev 'a': quota: "},
        Wrong{VDEV "allow = \"qp1\"", 5, "allow is a list, such as [\"raw-packet\"]"},
        Wrong{VDEV "allow = [\"everything\"]", 5, "everything"},
        Wrong{VDEV "allow = [\n\"qp1\",\n1]", 7, "each of vdev 'a': allow is a text"},
        Wrong{VDEV "addresses = [\"10.0.0.0/99\"]", 5, "is not an address prefix"},
        Wrong{VDEV "no_direct = \"yes\"", 5, "no_direct is true or false"},
        Wrong{VDEV "gid_layout = \"foo\"", 5, "'foo' is not one of dense, mlx5"},
        Wrong{VDEV "labels = 1", 5, "labels is a table"},
        Wrong{VDEV "labels = { a = 1 }", 5, "label 'a' is a text in quotes"},
        Wrong{VDEV "labels = { \"a b\" = \"\" }", 5, "'a b' is not a valid label key"},
        Wrong{VDEV "labels = { a = \"\\n\" }", 5, "the value of label 'a' is invalid"},
        Wrong{VDEV "labels = { \"vrdma.io/applied-by\" = \"x\" }", 5, "is apply's own"},
        Wrong{VDEV VDEV, 5, "vdev 'a' in netns 'n' is in line 1 already"}));

TEST(ApplyFile, every_mistake_is_named_by_line) {
  const auto mistakes = parse(R"(sett = "x"
[[vdev]]
name = "a"
netns = "n"
quota = { qp = -1, sqr = 1 }
[fabric.f]
reach = 1
)")
                            .mistakes;
  std::vector<Line> lines;
  for (const auto& one : mistakes) lines.push_back(one.line);
  EXPECT_EQ(lines, (std::vector<Line>{1, 2, 5, 5, 7}));
}

TEST(ApplyFile, what_is_written_is_read_again) {
  const File file = parse(kWhole).file;
  State state;
  for (const auto& [key, at] : file.budgets) state.budgets[key] = at.value;
  for (const auto& [name, at] : file.fabrics)
    if (at.value != Fabric()) state.fabrics[name] = at.value;
  for (const auto& at : file.vdevices) {
    Existing& one = state.vdevices.emplace_back();
    one.vdevice = at.value;
    one.set = "lab";
  }
  state.vdevices[1].vdevice.labels = {{"q\"uote", "b\\ack\tslash"}};  // the daemon has others
  Existing& held = state.vdevices.emplace_back(state.vdevices[0]);
  held.vdevice.name = "held";
  held.held = "containers";
  const std::string text = written(state);
  EXPECT_THAT(text, testing::Not(HasSubstr("held")));
  const auto [again, mistakes] = parse(text);
  // The parser checks labels; all else must be right.
  ASSERT_THAT(mistakes, SizeIs(1));
  EXPECT_THAT(mistakes[0].sentence, HasSubstr("'q\"uote' is not a valid label key"));
  EXPECT_EQ(again.set, "lab");
  ASSERT_THAT(again.vdevices, SizeIs(2));
  EXPECT_EQ(again.vdevices[0].value, state.vdevices[0].vdevice);
  EXPECT_EQ(again.vdevices[1].value, state.vdevices[1].vdevice);
  EXPECT_EQ(again.budgets.at({Scope::kTenant, "red"}).value,
            state.budgets.at({Scope::kTenant, "red"}));
  EXPECT_EQ(again.fabrics.at("storage").value, state.fabrics.at("storage"));
}

}  // namespace
}  // namespace vrdma::cli::apply
