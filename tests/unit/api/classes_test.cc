#include "api/classes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/core/base/temp_dir.h"

namespace vrdma::api {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

// Of the file, or else of its first wrong class.
std::string error_of(const std::string& text) {
  const auto classes = Classes::parse(text, "c.conf");
  if (!classes) return classes.error().message();
  return classes->wrong().empty() ? "" : classes->wrong().begin()->second.message();
}

TEST(Classes, the_default_class_exists_without_a_file) {
  const auto classes = Classes::read("/nowhere/classes.conf");
  ASSERT_TRUE(classes) << classes.error().message();
  ASSERT_EQ(classes->all().size(), 1U);
  const auto found = classes->find("default");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->tenant_of({7, ""}), "") << "each vdevice is a tenant of its own";
  EXPECT_EQ(found->fabric_of({0, ""}), "containers");
  EXPECT_EQ(found->fabric_of({7, ""}), "uid7") << "users do not share an address domain by default";
  EXPECT_EQ(found->most, 64U);
  EXPECT_EQ(found->parent, "soft");
  EXPECT_EQ(found->device, "vrdma0");
  EXPECT_EQ(found->netdev, "");
  EXPECT_THAT(found->allow, IsEmpty());
  EXPECT_THAT(found->annotations, IsEmpty());
  EXPECT_FALSE(found->host_network || found->per_container);
  EXPECT_TRUE(found->is_for(0));
  EXPECT_FALSE(found->is_for(1000)) << "only root";
  const auto missing = classes->find("a\nb");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message(), "there is no class 'a\\x0ab' in /nowhere/classes.conf");
}

TEST(Classes, sections_are_classes) {
  const auto classes = Classes::parse(
      "# what containers get\n"
      "name = \"mlx5_0\"\n"
      "\n"
      "[small]\n"
      "tenant = red\n"
      "fabric = blue  # by name\n"
      "quota = qp=64,mr_bytes=1g\n"
      "parent = rxe0\n"
      "netdev = eth1.5\n"
      "allow = userfaultfd, qp1\n"
      "users = root 1001\n"
      "host_network = yes\n"
      "per_container = true\n"
      "most = 5\n"
      "memory = reached\n"
      "annotations = [quota, name]\n"
      "max_quota = qp=256\n"
      "[empty.1]\n"
      "fabric = tenant\n"
      "[by-user]\n"
      "tenant = user\n"
      "fabric = user\n"
      "users = *\n",
      "c.conf");
  ASSERT_TRUE(classes) << classes.error().message();
  EXPECT_EQ(classes->all().size(), 4U);
  EXPECT_EQ(classes->find("default")->device, "mlx5_0");
  const Class small = *classes->find("small");
  EXPECT_EQ(small.tenant_of({1, "shop"}), "red");
  EXPECT_EQ(small.fabric_of({1, "shop"}), "blue");
  ASSERT_EQ(small.quota.size(), 2U);
  EXPECT_EQ(small.quota[1].kind, "mr_bytes");
  EXPECT_EQ(small.quota[1].limit, uint64_t{1} << 30);
  EXPECT_EQ(small.parent, "rxe0");
  EXPECT_EQ(small.netdev, "eth1.5");
  EXPECT_THAT(small.allow, ElementsAre("userfaultfd", "qp1"));
  EXPECT_EQ(small.device, "vrdma0");
  EXPECT_TRUE(small.is_for(1001));
  EXPECT_FALSE(small.is_for(1002));
  EXPECT_TRUE(small.host_network && small.per_container);
  EXPECT_EQ(small.most, 5U);
  EXPECT_TRUE(small.memory_reached);
  EXPECT_FALSE(classes->find("default")->memory_reached);
  EXPECT_THAT(small.annotations, UnorderedElementsAre("quota", "name"));
  ASSERT_EQ(small.max_quota.size(), 1U);
  EXPECT_EQ(small.max_quota[0].limit, 256U);
  EXPECT_EQ(classes->find("empty.1")->device, "vrdma0");
  EXPECT_EQ(classes->find("empty.1")->fabric_of({7, ""}), "") << "the tenant's own";
  const Class by_user = *classes->find("by-user");
  EXPECT_EQ(by_user.tenant_of({1001, ""}), "uid1001");
  EXPECT_EQ(by_user.fabric_of({0, ""}), "uid0");
  EXPECT_TRUE(by_user.is_for(65534));
}

TEST(Classes, mistakes_are_one_sentence_with_the_file_the_class_and_the_key) {
  EXPECT_EQ(error_of("[a]\nqouta = qp=1\n"),
            "c.conf: class 'a': there is no key 'qouta'; do you mean quota?; there are "
            "allow,annotations,devices,"
            "fabric,host_network,max_quota,memory,most,name,netdev,parent,peers,per_container,"
            "quota,reach,tenant,users");
  EXPECT_EQ(error_of("[a]\nmemory = private\n"),
            "c.conf: class 'a': memory: 'private' is neither in-place nor reached");
  EXPECT_EQ(error_of("[a]\nreach = moon\n"),
            "c.conf: class 'a': reach: 'moon' is none of host, network and wire");
  EXPECT_EQ(
      error_of("[a]\nfabric = tenant\nreach = network\n"),
      "c.conf: class 'a': reach: each vdevice has a fabric of its own, which cannot reach the "
      "network: set fabric or tenant");
  EXPECT_EQ(error_of("[a]\nreach = network\npeers = 10.0.0.0/33\n"),
            "c.conf: class 'a': peers: '10.0.0.0/33' is not an address prefix such as 10.0.0.0/24 "
            "or fd00::/64");
  EXPECT_EQ(error_of("[a]\npeers = all\n"),
            "c.conf: class 'a': peers: set reach to network or wire, too");
  for (const std::string devices : {"0", "10001"})
    EXPECT_EQ(error_of("[a]\ndevices = " + devices + "\n"),
              "c.conf: class 'a': devices: " + devices + " is not a number from 1 to 10000");
  EXPECT_EQ(error_of("[a]\nquota = qp=-1\n"),
            "c.conf: class 'a': quota: quota qp: '-1' is not a number such as 64, 16k or max");
  EXPECT_EQ(error_of("name = a/b\n"),
            "c.conf: class 'default': name: 'a/b' is not a valid name: it needs 1 to 63 letters, "
            "digits, '_', '-' or '.', and begins with a letter, a digit or '_'");
  EXPECT_EQ(error_of("[a]\nallow = everything\n"),
            "c.conf: class 'a': allow: there is no permission 'everything': there are raw-packet, "
            "qp1, userfaultfd");
  for (const std::string number : {"-1", "many", "18446744073709551616"})
    EXPECT_EQ(error_of("[a]\nmost = " + number + "\n"),
              "c.conf: class 'a': most: '" + number + "' is not a number");
  EXPECT_EQ(error_of("[a]\nhost_network = maybe\n"),
            "c.conf: class 'a': host_network: 'maybe' is neither yes nor no");
  EXPECT_EQ(error_of("[a]\nannotations = tenant\n"),
            "c.conf: class 'a': annotations: there is no annotation 'tenant': containers may "
            "choose quota, netdev and name");
  EXPECT_EQ(error_of("[a]\nusers = nobody-at-all\n"),
            "c.conf: class 'a': users: there is no user 'nobody-at-all': use a name, a number or "
            "*");
  EXPECT_EQ(error_of("[a]\nnetdev = eth0 eth1\n"),
            "c.conf: class 'a': netdev: it has one value, not 'eth0,eth1'");
  EXPECT_EQ(error_of("[a]\nnetdev = sixteen-letters-\n"),
            "c.conf: class 'a': netdev: 'sixteen-letters-' is not the name of a network interface");
  EXPECT_EQ(error_of("[a]\nname = x\nparent = y\nname = z\n"),
            "c.conf: class 'a': name: it is set twice");
  EXPECT_EQ(error_of("[a]\n[x\n"), "c.conf: line 2: '[x' does not begin a class: write [NAME]");
  EXPECT_EQ(error_of("[]\nname = x\n"),
            "c.conf: line 1: '[]' does not begin a class: write [NAME]");
  EXPECT_EQ(error_of("\n# one\nname\n"), "c.conf: line 3: 'name' is no key: write KEY = VALUE");
  EXPECT_EQ(error_of("name = \xff\n"), "c.conf: line 1 is not UTF-8: 'name = \\xff'");
  EXPECT_EQ(error_of("[a]\nname = x\n[b]\n[a]\nname = z\n"), "c.conf: class 'a': it appears twice");
  EXPECT_EQ(error_of("most = 1\n[default]\nmost = 2\n"),
            "c.conf: class 'default': most: it has one value, not '1,2'");
  EXPECT_EQ(error_of("[default]\nmost = 2\n"), "");
  EXPECT_THAT(error_of("[a/b]\n"), testing::HasSubstr("c.conf: class 'a/b' is not a valid name"));
  EXPECT_NE(error_of("[_a]\n"), "") << "CDI has no such name";
}

TEST(Classes, a_mistake_of_one_class_leaves_the_others) {
  const auto classes = Classes::parse("[a]\nname = x0\n[b]\nname = /\n[c]\nmost = 2\n", "c.conf");
  ASSERT_TRUE(classes) << classes.error().message();
  EXPECT_EQ(classes->find("a")->device, "x0");
  EXPECT_EQ(classes->find("c")->most, 2U);
  EXPECT_FALSE(classes->all().contains("b"));
  EXPECT_EQ(classes->find("b").error().message(), classes->wrong().at("b").message());
}

TEST(Classes, of_pods_go_by_their_namespace) {
  const auto classes = Classes::parse(
      "[a]\ntenant = namespace\nfabric = namespace\nreach = network\ndevices = 7\n"
      "peers = 10.1.2.3/8 fd00::/8\n"
      "[b]\ntenant = namespace\nfabric = tenant\n"
      "[c]\ntenant = x\nreach = wire\npeers = all\n",
      "c.conf");
  ASSERT_TRUE(classes) << classes.error().message();
  const Class a = *classes->find("a");
  EXPECT_EQ(a.tenant_of({0, "shop"}), "k8s/shop");
  EXPECT_EQ(a.fabric_of({0, "shop"}), "k8s/shop");
  EXPECT_EQ(a.reach, "network");
  EXPECT_EQ(a.peers, gid::parse_prefixes({"10.0.0.0/8", "fd00::/8"}).value());
  EXPECT_EQ(classes->find("b")->peers, std::nullopt) << "those that the fabric has";
  EXPECT_EQ(classes->find("c")->peers, std::vector<gid::Prefix>());
  EXPECT_EQ(a.devices, 7U);
  EXPECT_TRUE(a.is_for_pods());
  EXPECT_EQ(classes->find("b")->fabric_of({0, "shop"}), "") << "that of its tenant alone";
  EXPECT_EQ(classes->find("c")->devices, 64U);
  EXPECT_FALSE(classes->find("c")->is_for_pods());
}

TEST(Classes, a_file_is_read_again_when_it_has_changed) {
  const test::TempDir directory;
  const std::string path = directory / "classes.conf";
  const auto write = [&path](const std::string& text) { test::write_file(path, text); };
  ClassFile file(path);
  EXPECT_EQ(file.read()->all().size(), 1U) << "there is none";
  write("[a]\n");
  EXPECT_TRUE(file.read()->all().contains("a"));
  EXPECT_TRUE(file.read()->all().contains("a"));
  write("[b]\n");
  EXPECT_FALSE(file.read()->all().contains("a"));
  write("[b\n");
  EXPECT_FALSE(file.read());
  write("[b]\nusers = nobody-at-all\n");
  EXPECT_TRUE(file.read()->wrong().contains("b"));
  std::filesystem::remove(path);
  EXPECT_EQ(file.read()->all().size(), 1U);
}

TEST(Classes, reads_only_regular_files) {
  const std::string path = testing::TempDir() + "classes_test.conf";
  std::ofstream(path) << "[a]\nname = b0\n";
  const auto classes = Classes::read(path);
  ASSERT_TRUE(classes) << classes.error().message();
  EXPECT_EQ(classes->find("a")->device, "b0");
  std::filesystem::remove(path);
  EXPECT_EQ(Classes::read("/dev/zero").error().message(),
            "/dev/zero is not a file of at most 1 MiB");
}

}  // namespace
}  // namespace vrdma::api
