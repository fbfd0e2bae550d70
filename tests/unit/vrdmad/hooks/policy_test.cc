#include "vrdmad/hooks/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vrdma::vrdmad {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr HookCaller kRoot{0, 0, false};
constexpr HookCaller kUser{1001, 1001, false};

api::Class class_of(const std::string& keys) {
  return *api::Classes::parse("[c]\n" + keys, "c.conf")->find("c");
}

HookRequest container() {
  HookRequest request;
  request.container = "c0ffee";
  return request;
}

std::string refusal_of(const std::string& keys, const HookRequest& asked,
                       const HookCaller& caller = kRoot) {
  const auto spec = grant(class_of(keys), asked, caller);
  return spec ? "" : spec.error().message();
}

TEST(Policy, a_container_gets_what_its_class_says) {
  const auto spec = grant(class_of("tenant = red\nfabric = f\nquota = qp=7\nparent = rxe0\n"
                                   "netdev = eth1\nallow = qp1\nname = mlx5_0\n"),
                          container(), kRoot);
  ASSERT_TRUE(spec) << spec.error().message();
  EXPECT_EQ(spec->name, "mlx5_0");
  EXPECT_EQ(spec->netdev, "eth1");
  EXPECT_EQ(spec->tenant, "red");
  EXPECT_EQ(spec->fabric, "f");
  EXPECT_EQ(spec->parent, "rxe0");
  EXPECT_THAT(spec->quota, ElementsAre(QuotaSetting{"qp", 7}));
  EXPECT_THAT(spec->allow, ElementsAre("qp1"));
  EXPECT_EQ(spec->labels.at("container"), "c0ffee");
  EXPECT_EQ(spec->labels.at("class"), "c");
}

TEST(Policy, tenant_and_fabric_may_be_those_of_the_user_that_owns_the_namespace) {
  const auto spec =
      grant(class_of("tenant = user\nfabric = user\nusers = *\n"), container(), kUser);
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->tenant, "uid1001");
  EXPECT_EQ(spec->fabric, "uid1001");
  EXPECT_EQ(grant(class_of("tenant = user\n"), container(), {0, 1002, false})->tenant, "uid1002")
      << "root asks for a user's container";
}

TEST(Policy, what_may_exchange_netdevs_is_labelled) {
  HookRequest asked = container();
  EXPECT_FALSE(grant(class_of(""), asked, kRoot)->labels.contains("network_admin"));
  asked.network_admin = true;
  EXPECT_EQ(grant(class_of(""), asked, kRoot)->labels.at("network_admin"), "yes");
}

TEST(Policy, users_share_a_fabric_only_if_the_class_names_it) {
  const auto fabric_of = [](const std::string& keys, const HookCaller& caller) {
    return grant(class_of("users = *\n" + keys), container(), caller)->fabric;
  };
  EXPECT_EQ(fabric_of("", kRoot), "containers");
  EXPECT_EQ(fabric_of("", kUser), "uid1001");
  EXPECT_EQ(fabric_of("", {0, 1002, false}), "uid1002") << "root asks for a user's container";
  EXPECT_EQ(fabric_of("fabric = containers\n", kUser), "containers");
  EXPECT_EQ(fabric_of("fabric = tenant\n", kUser), "");
}

TEST(Policy, pods_are_what_runtimes_of_root_say) {
  HookRequest pod = container();
  pod.pod_namespace = "shop";
  pod.pod_name = "web-0";
  pod.pod_uid = "1-2";
  pod.container_name = "app";
  const std::string keys = "tenant = namespace\nfabric = namespace\nusers = *\n";
  const auto spec = grant(class_of(keys), pod, kRoot);
  ASSERT_TRUE(spec) << spec.error().message();
  EXPECT_EQ(spec->tenant, "k8s/shop");
  EXPECT_EQ(spec->fabric, "k8s/shop");
  EXPECT_EQ(spec->labels.at("pod_namespace"), "shop");
  EXPECT_EQ(spec->labels.at("pod_name"), "web-0");
  EXPECT_EQ(spec->labels.at("pod_uid"), "1-2");
  EXPECT_EQ(spec->labels.at("container_name"), "app");
  EXPECT_THAT(refusal_of(keys, pod, kUser), HasSubstr("which only root's runtimes may tell: user "
                                                      "1001 must use another class"));
  EXPECT_FALSE(grant(class_of("users = *\n"), pod, kUser)->labels.contains("pod_namespace"))
      << "anybody can write an annotation";
  EXPECT_THAT(refusal_of(keys, container()), HasSubstr("the container is in no pod of Kubernetes"));
  pod.pod_namespace = "a/b";
  EXPECT_THAT(refusal_of(keys, pod), HasSubstr("the namespace of the pod, 'a/b', is not a valid"));
}

TEST(Policy, the_label_of_a_user_is_the_owner_of_the_namespace) {
  const auto of_user = grant(class_of("users = *\n"), container(), kUser);
  EXPECT_EQ(of_user->labels.at("user"), "1001");
  EXPECT_EQ(grant(class_of(""), container(), {0, 1002, false})->labels.at("user"), "1002");
  EXPECT_FALSE(grant(class_of(""), container(), kRoot)->labels.contains("user"));
}

TEST(Policy, users_need_the_class_and_their_own_namespace) {
  EXPECT_EQ(refusal_of("", container()), "");
  EXPECT_EQ(refusal_of("", container(), kUser),
            "user 1001 may not use class 'c': add the user to its key `users` in classes.conf");
  EXPECT_EQ(refusal_of("users = 1001\n", container(), kUser), "");
  EXPECT_EQ(refusal_of("users = *\n", container(), {1001, 1002, false}),
            "the network namespace belongs to user 1002, not to user 1001: start the container as "
            "the user that owns it");
  EXPECT_THAT(refusal_of("", container(), {0, 0, true}), HasSubstr("the host's network"));
  EXPECT_EQ(refusal_of("host_network = yes\n", container(), {0, 0, true}), "");
}

TEST(Policy, annotations_count_only_if_the_class_names_them) {
  for (const auto& [key, field] : {std::pair{"quota", &HookRequest::quota},
                                   {"netdev", &HookRequest::netdev},
                                   {"name", &HookRequest::name}}) {
    HookRequest asked = container();
    asked.*field = key == std::string("quota") ? "qp=1" : "x0";
    EXPECT_THAT(refusal_of("", asked),
                HasSubstr("annotation vrdma.io/" + std::string(key) + ": class 'c' lets no"));
    EXPECT_EQ(refusal_of("annotations = " + std::string(key) + "\n", asked), "");
  }
  HookRequest asked = container();
  asked.name = "../x";
  EXPECT_THAT(refusal_of("annotations = name\n", asked), HasSubstr("is not a valid name"));
}

TEST(Policy, a_chosen_quota_has_a_maximum_of_each_kind) {
  const std::string keys = "annotations = quota\nquota = qp=8,cq=4\nmax_quota = qp=16\n";
  HookRequest asked = container();
  asked.quota = "qp=16";
  const auto spec = grant(class_of(keys), asked, kRoot);
  ASSERT_TRUE(spec);
  EXPECT_THAT(spec->quota, ElementsAre(QuotaSetting{"cq", 4}, QuotaSetting{"qp", 16}));
  asked.quota = "qp=17";
  EXPECT_EQ(refusal_of(keys, asked),
            "annotation vrdma.io/quota: class 'c' allows at most qp=16: "
            "ask for less, or set max_quota in classes.conf");
  asked.quota = "cq=5";
  EXPECT_THAT(refusal_of(keys, asked), HasSubstr("at most cq=4"));
  asked.quota = "pd=max";
  EXPECT_THAT(refusal_of(keys, asked), HasSubstr("at most pd=1024")) << "what it has by itself";
  asked.quota = "pd=3";
  EXPECT_EQ(refusal_of(keys, asked), "");
  asked.quota = "heaps";
  EXPECT_THAT(refusal_of(keys, asked), HasSubstr("annotation vrdma.io/quota: 'heaps' is not"));
}

TEST(Policy, the_budgets_limit_what_the_class_does_not) {
  HookRequest asked = container();
  asked.quota = "qp=16,cq=4,pd=3";
  const api::Class its = class_of("annotations = quota\nquota = cq=4\nmax_quota = qp=16\n");
  const auto spec = grant(its, asked, kRoot);
  ASSERT_TRUE(spec) << spec.error().message();
  EXPECT_THAT(only_lowered(its, *spec), ElementsAre("pd"));
}

}  // namespace
}  // namespace vrdma::vrdmad
