#include "cli/kubernetes/plugin/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/kubernetes/plugin/names.h"

namespace vrdma::cli::kubernetes {
namespace {

using testing::HasSubstr;

v1::Class class_with(uint32_t devices, uint32_t given, uint32_t free) {
  v1::Class made;
  made.set_name("small");
  made.set_devices(devices);
  made.set_given(given);
  made.set_free(free);
  return made;
}

v1beta1::AllocateRequest request_of(const std::vector<std::vector<std::string>>& containers) {
  v1beta1::AllocateRequest request;
  for (const auto& ids : containers) {
    auto& container = *request.add_container_requests();
    for (const auto& id : ids) container.add_devices_ids(id);
  }
  return request;
}

TEST(PluginDevices, are_as_many_as_there_is_room_for) {
  EXPECT_EQ(offer_of(class_with(4, 0, UINT32_MAX), true).devices, 4u);
  EXPECT_EQ(offer_of(class_with(4, 1, 2), true).devices, 3u);
  EXPECT_EQ(offer_of(class_with(4, 7, 0), true).devices, 7u) << "containers have them";
  EXPECT_EQ(offer_of(class_with(0, 2, 5), true).devices, 2u);
  EXPECT_EQ(offer_of(class_with(4, UINT32_MAX, UINT32_MAX), true).devices, kMostDevices);
  EXPECT_TRUE(offer_of(class_with(4, 7, 0), true).healthy);
  EXPECT_FALSE(offer_of(class_with(4, 0, 9), false).healthy);
}

TEST(PluginDevices, are_never_an_empty_list) {
  for (const auto& none : {class_with(0, 0, 9), class_with(9, 0, 0)}) {
    const auto list = devices_of(offer_of(none, true));
    ASSERT_EQ(list.devices_size(), 1);
    EXPECT_EQ(list.devices(0).health(), "Unhealthy");
  }
}

TEST(PluginDevices, have_ids_health_and_numa_node) {
  auto which = class_with(2, 0, 9);
  auto list = devices_of(offer_of(which, true));
  ASSERT_EQ(list.devices_size(), 2);
  EXPECT_EQ(list.devices(0).id(), "small-0");
  EXPECT_EQ(list.devices(1).id(), "small-1");
  EXPECT_EQ(list.devices(1).health(), "Healthy");
  EXPECT_FALSE(list.devices(0).has_topology());
  which.set_numa_node(0);
  list = devices_of(offer_of(which, true));
  ASSERT_EQ(list.devices(1).topology().nodes_size(), 1);
  EXPECT_EQ(list.devices(1).topology().nodes(0).id(), 0);
}

TEST(PluginNames, fit_the_limits_of_kubernetes) {
  const std::string longest(63, 'x'), other = std::string(62, 'x') + "y";
  EXPECT_EQ(shorten("abc", 3, '~'), "abc");
  EXPECT_EQ(device_id(longest, UINT32_MAX).size(), 63u);
  EXPECT_NE(device_id(longest, 1), device_id(other, 1));
  EXPECT_TRUE(is_device_of(longest, device_id(longest, 12)));
  EXPECT_EQ(cdi_annotation("small"), "cdi.k8s.io/vrdma_small");
  const std::string key = cdi_annotation(longest).substr(sizeof "cdi.k8s.io/" - 1);
  EXPECT_EQ(key.size(), 63u);
  EXPECT_EQ(key.find('~'), std::string::npos) << key;
  EXPECT_EQ(cdi_name(longest), "vrdma.io/device=" + longest);
}

TEST(PluginNames, tell_devices_of_classes_apart) {
  EXPECT_TRUE(is_device_of("small", "small-0"));
  for (const char* id : {"", "small", "small-", "small-x", "small-1 ", "small--1", "big-1",
                         "small-1-1", "small-99999999999", "smaller-1"})
    EXPECT_FALSE(is_device_of("small", id)) << id;
  EXPECT_FALSE(is_device_of("small", "small-x-1"));
  EXPECT_TRUE(is_device_of("small-x", "small-x-1"));
}

TEST(PluginAllocate, answers_each_container_with_its_cdi_device) {
  const auto [answer, reason, sentence] =
      allocate("small", "vrdma.io/small", request_of({{"small-2"}, {"small-0"}}));
  EXPECT_EQ(reason, "");
  ASSERT_EQ(answer.container_responses_size(), 2);
  for (const auto& container : answer.container_responses()) {
    ASSERT_EQ(container.cdi_devices_size(), 1);
    EXPECT_EQ(container.cdi_devices(0).name(), "vrdma.io/device=small");
    ASSERT_EQ(container.annotations_size(), 1);
    EXPECT_EQ(container.annotations().at("cdi.k8s.io/vrdma_small"), "vrdma.io/device=small");
  }
}

TEST(PluginAllocate, refuses_with_what_to_do) {
  const auto many =
      allocate("small", "x.org/small", request_of({{"small-0"}, {"small-1", "small-2"}}));
  EXPECT_EQ(many.reason, "many");
  EXPECT_EQ(many.sentence,
            "a container gets one vdevice of class 'small': ask for x.org/small: 1, and set its "
            "quota in the class");
  EXPECT_EQ(allocate("small", "x.org/small", request_of({{}})).reason, "many");
  const auto foreign = allocate("small", "x.org/small", request_of({{"big-\x1b[2J"}}));
  EXPECT_EQ(foreign.reason, "unknown");
  EXPECT_THAT(foreign.sentence, HasSubstr("device 'big-\\x1b[2J' is not one of class 'small'"));
}

}  // namespace
}  // namespace vrdma::cli::kubernetes
