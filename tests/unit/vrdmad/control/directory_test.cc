#include "vrdmad/control/directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vrdma::vrdmad {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class DirectoryTest : public testing::Test {
 protected:
  void add(uint64_t id, const std::string& name, const std::string& netns, uint64_t cookie,
           const std::string& fabric = "f", const std::string& tenant = "t") {
    directory_.add(id, {name, netns, cookie, static_cast<uint32_t>(id), fabric, tenant});
  }
  uint64_t id_of(const std::string& reference) {
    const auto found = directory_.find(reference);
    return found ? *found : 0;
  }
  base::Error error_of(const std::string& reference) {
    const auto found = directory_.find(reference);
    return found ? base::Error(0, "") : found.error();
  }

  std::map<std::string, uint64_t> namespaces_;
  int resolved_ = 0;
  Directory directory_{[this](const std::string& netns) -> std::optional<uint64_t> {
    ++resolved_;
    const auto it = namespaces_.find(netns);
    if (it == namespaces_.end()) return {};
    return it->second;
  }};
};

TEST_F(DirectoryTest, a_name_is_enough_while_it_is_unique) {
  add(1, "mlx5_0", "red", 100);
  EXPECT_EQ(id_of("mlx5_0"), 1U);
  EXPECT_EQ(id_of("red/mlx5_0"), 1U);
  EXPECT_EQ(id_of("id:1"), 1U);
  add(2, "mlx5_0", "blue", 200);
  EXPECT_EQ(id_of("red/mlx5_0"), 1U);
  EXPECT_EQ(id_of("blue/mlx5_0"), 2U);
  EXPECT_EQ(error_of("mlx5_0").code(), ENOTUNIQ);
  EXPECT_EQ(error_of("mlx5_0").message(),
            "there are 2 vdevices 'mlx5_0', name one of them as NETNS/NAME: red/mlx5_0 (id:1), "
            "blue/mlx5_0 (id:2)");
  directory_.remove(1);
  EXPECT_EQ(id_of("mlx5_0"), 2U);
  EXPECT_EQ(error_of("red/mlx5_0").code(), ENOENT);
  EXPECT_EQ(resolved_, 4) << "a text may mean another namespace than it did";
}

TEST_F(DirectoryTest, what_is_not_there_is_said_once) {
  add(1, "a", "red", 100);
  EXPECT_EQ(error_of("b").message(), "there is no vdevice 'b'");
  EXPECT_EQ(error_of("").code(), ENOENT);
  EXPECT_EQ(error_of("red/b").message(), "there is no vdevice 'b' in netns 'red'");
  EXPECT_EQ(error_of("blue/a").message(), "there is no vdevice 'a' in netns 'blue'");
  for (const char* reference :
       {"id:2", "id:", "id:x", "id:1x", "id:-1", "/", "a/", "/a", "id:99999999999999999999"})
    EXPECT_EQ(error_of(reference).code(), ENOENT) << reference;
  EXPECT_EQ(error_of("\n").message(), "there is no vdevice '\\x0a'");
}

TEST_F(DirectoryTest, a_namespace_may_be_named_in_any_way) {
  namespaces_ = {{"red", 100}, {"/proc/42/ns/net", 100}, {"pid:42", 100}, {"pid:43", 200}};
  add(1, "a", "red", 100);
  add(2, "a", "/run/netns/blue", 200);
  EXPECT_EQ(id_of("/proc/42/ns/net/a"), 1U);
  EXPECT_EQ(id_of("pid:42/a"), 1U);
  EXPECT_EQ(id_of("pid:43/a"), 2U);
  EXPECT_EQ(id_of("/run/netns/blue/a"), 2U);
}

// Its namespace lives on without the name, and another one has it.
TEST_F(DirectoryTest, a_name_that_passed_on_means_both) {
  namespaces_ = {{"red", 100}};
  add(1, "a", "red", 100);
  namespaces_ = {{"red", 200}, {"/run/netns/red", 200}};
  add(2, "a", "/run/netns/red", 200);
  EXPECT_EQ(error_of("red/a").code(), ENOTUNIQ);
  EXPECT_EQ(id_of("/run/netns/red/a"), 2U);
}

TEST_F(DirectoryTest, a_name_of_a_namespace_may_have_meant_another_one) {
  namespaces_ = {{"red", 200}};
  add(1, "a", "red", 100);
  add(2, "a", "red", 200);
  EXPECT_EQ(id_of("red/a"), 2U) << "the text's present meaning";
  namespaces_.clear();
  EXPECT_EQ(error_of("red/a").code(), ENOTUNIQ);
  EXPECT_THAT(error_of("red/a").message(), HasSubstr("id:N: red/a (id:1), red/a (id:2)"));
  EXPECT_EQ(id_of("id:1"), 1U);
  EXPECT_THAT(directory_.created_as("red", "a"), ElementsAre(1, 2));
}

TEST_F(DirectoryTest, a_container_is_named_by_the_beginning_of_its_id) {
  directory_.add(1, {"a", "pid:1", 100, 1, "f", "t", "", {"c0ffee11", "c0ffee22"}});
  directory_.add(2, {"a", "pid:2", 200, 1, "f", "t", "", {"c0ffee2233"}});
  EXPECT_EQ(id_of("container:c0ffee1"), 1U);
  EXPECT_EQ(id_of("container:c0ffee22"), 1U) << "a whole id, though another one begins so";
  EXPECT_EQ(id_of("container:c0ffee223"), 2U);
  EXPECT_EQ(error_of("container:c0").code(), ENOTUNIQ);
  EXPECT_EQ(error_of("container:c0").message(),
            "'container:c0' means 2 vdevices, name one of them as id:N: pid:1/a (id:1), pid:2/a "
            "(id:2)");
  EXPECT_EQ(error_of("container:d").message(),
            "no container whose id begins with 'd' has a vdevice");
  EXPECT_EQ(error_of("container:").code(), ENOENT);
  directory_.set_containers(1, {"beef"});
  EXPECT_EQ(id_of("container:c0"), 2U);
  EXPECT_EQ(id_of("container:beef"), 1U);
  directory_.remove(1);
  EXPECT_EQ(error_of("container:beef").code(), ENOENT);
}

TEST_F(DirectoryTest, a_pod_is_a_name_that_never_hides_another_one) {
  EXPECT_EQ(error_of("shop/web-0").message(), "there is no vdevice 'web-0' in netns 'shop'");
  directory_.add(1, {"vrdma0", "pid:1", 100, 1, "f", "t", "shop/web-0", {"c1"}});
  EXPECT_EQ(id_of("shop/web-0"), 1U);
  EXPECT_EQ(error_of("shop/web-1").message(),
            "there is no vdevice 'web-1' in netns 'shop', and no pod of that name has one");
  add(2, "web-0", "shop", 200);
  EXPECT_EQ(error_of("shop/web-0").message(),
            "'shop/web-0' means 2 vdevices, name one of them as id:N: pid:1/vrdma0 (id:1), "
            "shop/web-0 (id:2)");
  namespaces_ = {{"shop", 200}};
  directory_.remove(2);
  add(2, "web-0", "pid:9", 200);
  EXPECT_EQ(error_of("shop/web-0").code(), ENOTUNIQ) << "another text for the namespace";
  directory_.remove(1);
  EXPECT_EQ(id_of("shop/web-0"), 2U);
}

TEST_F(DirectoryTest, many_candidates_are_counted) {
  for (uint64_t id = 1; id <= 1000; ++id) add(id, "mlx5_0", "pod" + std::to_string(id), id);
  const std::string sentence = error_of("mlx5_0").message();
  EXPECT_THAT(sentence, HasSubstr("there are 1000 vdevices 'mlx5_0'"));
  EXPECT_THAT(sentence, HasSubstr("pod8/mlx5_0 (id:8) and 992 more"));
  EXPECT_LT(sentence.size(), 300U);
}

TEST_F(DirectoryTest, places_and_numbers_are_of_a_namespace) {
  add(1, "a", "red", 100);
  add(2, "b", "red", 100);
  add(3, "a", "blue", 200);
  add(4, "lost", "green", 0);
  EXPECT_EQ(directory_.at(100, "a"), 1U);
  EXPECT_EQ(directory_.at(200, "b"), std::nullopt);
  EXPECT_EQ(directory_.at(0, "lost"), std::nullopt) << "the namespace of a lost vdevice is unknown";
  EXPECT_THAT(directory_.numbers(100), ElementsAre(1, 2));
  directory_.remove(1);
  directory_.remove(1);
  EXPECT_EQ(directory_.at(100, "a"), std::nullopt);
  EXPECT_THAT(directory_.numbers(100), ElementsAre(2));
  EXPECT_EQ(id_of("green/lost"), 4U);
}

TEST_F(DirectoryTest, a_fabric_is_shared_by_tenants_not_by_vdevices) {
  add(1, "a", "red", 100, "f", "red");
  add(2, "b", "red", 100, "f", "red");
  EXPECT_FALSE(directory_.is_shared("f", ""));
  EXPECT_FALSE(directory_.is_shared("f", "red"));
  EXPECT_TRUE(directory_.is_shared("f", "blue")) << "the vdevice that joins";
  EXPECT_FALSE(directory_.is_shared("g", "blue"));
  add(3, "a", "blue", 200, "f", "blue");
  EXPECT_TRUE(directory_.is_shared("f", ""));
  EXPECT_THAT(directory_.in_fabric("f"), ElementsAre(1, 2, 3));
  directory_.remove(3);
  EXPECT_FALSE(directory_.is_shared("f", ""));
  directory_.remove(1);
  directory_.remove(2);
  EXPECT_TRUE(directory_.in_fabric("f").empty());
}

}  // namespace
}  // namespace vrdma::vrdmad
