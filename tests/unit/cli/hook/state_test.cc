#include "cli/hook/state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace vrdma::cli::hook {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

const Json kState = {{"ociVersion", "1.0.2"},
                     {"id", "c1"},
                     {"status", "creating"},
                     {"pid", 4711},
                     {"bundle", "/run/bundle"}};

Json with_annotation(const std::string& name, const std::string& value) {
  Json state = kState;
  state["annotations"] = {{name, value}};
  return state;
}

TEST(State, of_a_container_that_is_created) {
  const auto container = parse_state(kState.dump());
  ASSERT_TRUE(container) << container.error().message();
  EXPECT_EQ(container->id, "c1");
  EXPECT_EQ(container->bundle, "/run/bundle");
  EXPECT_EQ(container->pid, 4711);
  EXPECT_EQ(container->pod, "");
  EXPECT_FALSE(container->sandbox);
}

TEST(State, of_a_container_that_has_ended_names_no_process) {
  for (const Json& pid :
       {Json(0), Json(-1), Json("1"), Json(1ULL << 40), Json(1.5), Json(nullptr)}) {
    Json state = kState;
    state["pid"] = pid;
    const auto container = parse_state(state.dump());
    ASSERT_TRUE(container) << pid;
    EXPECT_EQ(container->pid, 0) << pid;
  }
}

TEST(State, of_a_container_that_is_restored) {
  Json state = kState;
  for (const auto& [status, restored] :
       {std::pair{"creating", false}, {"created", false}, {"stopped", true}}) {
    state["status"] = status;
    EXPECT_EQ(parse_state(state.dump())->restored, restored) << status;
  }
  state["pid"] = 0;  // as at poststop
  EXPECT_FALSE(parse_state(state.dump())->restored);
}

TEST(State, pods_of_podman_and_of_containerd) {
  for (const char* const name : {"io.kubernetes.cri-o.SandboxID", "io.kubernetes.cri.sandbox-id"})
    EXPECT_EQ(parse_state(with_annotation(name, "pod1").dump())->pod, "pod1");
  for (const char* const name :
       {"io.kubernetes.cri-o.ContainerType", "io.kubernetes.cri.container-type"}) {
    EXPECT_TRUE(parse_state(with_annotation(name, "sandbox").dump())->sandbox);
    EXPECT_FALSE(parse_state(with_annotation(name, "container").dump())->sandbox);
  }
}

TEST(State, wishes_are_three_annotations) {
  Json state = kState;
  state["annotations"] = {{"vrdma.io/quota", "qp=8"},
                          {"vrdma.io/netdev", "eth1"},
                          {"vrdma.io/name", "mlx5_0"},
                          {"vrdma.io/tenant", "evil"}};
  const auto container = parse_state(state.dump());
  ASSERT_TRUE(container);
  EXPECT_EQ(container->quota, "qp=8");
  EXPECT_EQ(container->netdev, "eth1");
  EXPECT_EQ(container->name, "mlx5_0");
}

TEST(State, misspelt_annotations_are_refused_and_others_noted) {
  for (const auto& [wrong, meant] :
       {std::pair{"quotas", "quota"}, {"Quota", "quota"}, {"nme", "name"}, {"netdevs", "netdev"}}) {
    const auto refused =
        parse_state(with_annotation(std::string("vrdma.io/") + wrong, "qp=8").dump());
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.error().message(), std::string("container c1: there is no annotation "
                                                     "'vrdma.io/") +
                                             wrong + "'; do you mean vrdma.io/" + meant + "?");
  }
  const auto noted = parse_state(with_annotation("vrdma.io/tenant\x1b", "red").dump());
  ASSERT_TRUE(noted);
  ASSERT_EQ(noted->notes.size(), 1u);
  EXPECT_EQ(noted->notes[0],
            "the annotation 'vrdma.io/tenant\\x1b' is ignored: a container may choose "
            "vrdma.io/netdev, vrdma.io/name and vrdma.io/quota");
  EXPECT_TRUE(parse_state(with_annotation("vrdma.io/quota", "qp=8").dump())->notes.empty());
  EXPECT_TRUE(parse_state(with_annotation("vrdma.iox/quotas", "qp=8").dump())->notes.empty());
  Json state = kState;
  for (int i = 0; i < 100; ++i) state["annotations"]["vrdma.io/more" + std::to_string(i)] = "x";
  EXPECT_EQ(parse_state(state.dump())->notes.size(), 8u);
}

TEST(State, annotations_of_other_types_are_none) {
  Json state = kState;
  for (const Json& annotations : {Json(7), Json::array({"vrdma.io/name"}),
                                  Json({{"vrdma.io/name", {{"a", 1}}}}), Json(nullptr)}) {
    state["annotations"] = annotations;
    const auto container = parse_state(state.dump());
    ASSERT_TRUE(container) << annotations;
    EXPECT_EQ(container->name, "");
  }
}

TEST(State, texts_that_are_not_printable_are_refused) {
  for (const std::string& bad : {std::string("a\nb"), std::string("a\0b", 3),
                                 std::string("\x1b[2J"), std::string("\u00e4")}) {
    EXPECT_FALSE(parse_state(with_annotation("vrdma.io/name", bad).dump()));
    Json state = kState;
    state["id"] = bad;
    EXPECT_FALSE(parse_state(state.dump()));
  }
}

TEST(State, nonsense_is_refused_in_one_sentence) {
  for (const char* const text : {"", "{", "7", "[]", "null", R"({"id": 1})", R"({"id": "c"})",
                                 R"({"id": "c", "bundle": "relative"})"}) {
    const auto container = parse_state(text);
    ASSERT_FALSE(container) << text;
    EXPECT_THAT(container.error().message(), HasSubstr("the state of "));
  }
}

TEST(State, deep_nesting_does_not_exhaust_the_stack) {
  EXPECT_FALSE(parse_state(std::string(kMostState, '[')));
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  EXPECT_TRUE(parse_state(R"({"id": "c", "bundle": "/b", "x": )" + deep + "}"));
}

TEST(ContainerConfig, a_relative_root_is_below_the_bundle) {
  EXPECT_EQ(parse_config(R"({"root": {"path": "rootfs"}})", "/b")->root, "/b/rootfs");
  EXPECT_EQ(parse_config(R"({"root": {"path": "/r"}})", "/b")->root, "/r");
  for (const char* const text : {"{}", R"({"root": "/r"})", R"({"root": {"path": ""}})", "[]",
                                 R"({"root": {"path": "/r\u0000x"}})"})
    EXPECT_FALSE(parse_config(text, "/b")) << text;
}

TEST(ContainerConfig, directories_of_the_library_path) {
  const auto config = parse_config(
      R"({"root": {"path": "/r"}, "process": {"env":
        ["A=/a", "LD_LIBRARY_PATH=/x::relative:/y/z:", 7, "XLD_LIBRARY_PATH=/n"]}})",
      "/b");
  ASSERT_TRUE(config);
  EXPECT_THAT(config->library_path, ElementsAre("/x", "/y/z"));
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "/d:";
  EXPECT_EQ(parse_config(R"({"root": {"path": "/r"}, "process": {"env": ["LD_LIBRARY_PATH=)" +
                             many + "\"]}}",
                         "/b")
                ->library_path.size(),
            32U);
}

const HookCommand kCommand{"/usr/lib/vrdma/vrdma-oci-hook", {"small", "", ""}};

TEST(ContainerConfig, programsMayHaveWhatTheBoundingSetHas) {
  const auto may_exchange = [](const std::string& process) {
    const auto config =
        parse_config(R"({"root": {"path": "/r"}, "process": )" + process + "}", "/");
    return config ? config->network_admin : throw config.error();
  };
  EXPECT_TRUE(may_exchange(R"({"capabilities": {"bounding": ["CAP_CHOWN", "CAP_NET_ADMIN"]}})"));
  EXPECT_FALSE(may_exchange(R"({"capabilities": {"bounding": ["CAP_CHOWN", "CAP_NET_RAW"]}})"));
  EXPECT_FALSE(may_exchange(R"({"capabilities": {"bounding": []}})"));
  EXPECT_FALSE(may_exchange(R"({"capabilities": {}})")) << "a runtime gives none";
  EXPECT_TRUE(may_exchange("{}")) << "the runtime decides";
  EXPECT_TRUE(may_exchange("7"));
  EXPECT_TRUE(may_exchange(R"({"capabilities": "all"})"));
}

TEST(AddHooks, both_hooks_are_behind_those_that_are_there) {
  const auto changed = add_hooks(
      R"({"b": 1, "a": 2, "hooks": {"createRuntime": [{"path": "/first"}], "poststart": []}})",
      kCommand);
  ASSERT_TRUE(changed && *changed);
  EXPECT_EQ(
      **changed,
      R"({"b":1,"a":2,"hooks":{"createRuntime":[{"path":"/first"},)"
      R"({"path":"/usr/lib/vrdma/vrdma-oci-hook","args":["vrdma-oci-hook","createRuntime","small"],)"
      R"("env":["PATH=/usr/bin"],"timeout":30}],"poststart":[],"poststop":[)"
      R"({"path":"/usr/lib/vrdma/vrdma-oci-hook","args":["vrdma-oci-hook","poststop"],)"
      R"("env":["PATH=/usr/bin"],"timeout":30}]}})");
}

TEST(AddHooks, another_run_directory_is_an_argument) {
  const auto changed = add_hooks("{}", {"/hook", {"small", "", ""}, "/r"});
  ASSERT_TRUE(changed && *changed);
  EXPECT_THAT(**changed,
              HasSubstr(R"(["vrdma-oci-hook","--run-dir","/r","createRuntime","small"])"));
  EXPECT_THAT(**changed, HasSubstr(R"(["vrdma-oci-hook","--run-dir","/r","poststop"])"));
}

TEST(AddHooks, once_only_and_not_to_the_sandbox_of_a_pod) {
  const auto changed = add_hooks("{}", kCommand);
  ASSERT_TRUE(changed && *changed);
  EXPECT_FALSE(*add_hooks(**changed, kCommand));
  EXPECT_FALSE(
      *add_hooks(R"({"annotations": {"io.kubernetes.cri.container-type": "sandbox"}})", kCommand));
  EXPECT_FALSE(add_hooks("nonsense", kCommand));
}

TEST(Config, the_identity_of_a_pod_is_what_containerd_or_crio_say) {
  Json config = {{"root", {{"path", "/r"}}},
                 {"annotations",
                  {{"io.kubernetes.cri.sandbox-namespace", "shop"},
                   {"io.kubernetes.cri.sandbox-name", "web-0"},
                   {"io.kubernetes.cri.sandbox-uid", "1-2"},
                   {"io.kubernetes.cri.container-name", "app"},
                   {"io.kubernetes.pod.namespace", "lab"},
                   {"io.kubernetes.pod.name", "db-0"},
                   {"io.kubernetes.pod.uid", "3-4"},
                   {"io.kubernetes.container.name", "sql"}}}};
  const auto pod = [&config](const std::string& bundle) {
    const Pod its = parse_config(config.dump(), bundle)->pod;
    return its.pod_namespace + " " + its.pod_name + " " + its.pod_uid + " " + its.container_name;
  };
  const std::string podman = "/var/lib/containers/storage/overlay-containers/c1/userdata";
  EXPECT_EQ(pod("/run/containerd/io.containerd.runtime.v2.task/k8s.io/c1"), "shop web-0 1-2 app");
  EXPECT_EQ(pod("/run/containerd/io.containerd.runtime.v2.task/default/c1"), "   ");
  EXPECT_EQ(pod(podman), "   ") << "an image may have these annotations";
  const Json known = config;
  for (const std::string& odd : {std::string(64, 'x'), std::string("a b"), std::string("a\nb")}) {
    config["annotations"]["io.kubernetes.cri.sandbox-uid"] = odd;
    EXPECT_EQ(pod("/run/containerd/io.containerd.runtime.v2.task/k8s.io/c1"), "   ")
        << "another client's";
  }
  config = known;
  config["linux"]["cgroupsPath"] = "/libpod_parent/libpod-c1";
  EXPECT_EQ(pod(podman), "   ");
  for (const char* const path : {"kubepods-pod3.slice:crio:c1", "/kubepods/pod3/crio-c1"}) {
    config["linux"]["cgroupsPath"] = path;
    EXPECT_EQ(pod("/run/containers/storage/overlay-containers/c1/userdata"), "lab db-0 3-4 sql");
  }
}

}  // namespace
}  // namespace vrdma::cli::hook
