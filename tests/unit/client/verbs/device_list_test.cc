#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/unit/client/verbs/fake.h"

namespace {

class DeviceList : public testing::Test {
 protected:
  void TearDown() override { ::unsetenv("FAKE_DEVICES"); }
};

TEST_F(DeviceList, ListsVirtualDevicesFirst) {
  ::setenv("FAKE_DEVICES", "a,b", 1);
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  ASSERT_NE(list, nullptr);
  ASSERT_GE(count, 2);
  EXPECT_STREQ(ibv_get_device_name(list[0]), "a");
  EXPECT_STREQ(ibv_get_device_name(list[1]), "b");
  EXPECT_EQ(list[count], nullptr);
  EXPECT_EQ(ibv_get_device_guid(list[0]), 0x1122334455667788U);
  EXPECT_EQ(ibv_get_device_index(list[0]), 42);
  EXPECT_EQ(list[0]->node_type, IBV_NODE_CA);
  EXPECT_EQ(list[0]->transport_type, IBV_TRANSPORT_IB);
  EXPECT_STREQ(list[0]->ibdev_path, "");
  ibv_free_device_list(list);
}

TEST_F(DeviceList, ListsTheSameDeviceAtTheSameAddressWhileItIsReferenced) {
  ::setenv("FAKE_DEVICES", "a", 1);
  ibv_device** first = ibv_get_device_list(nullptr);
  ibv_device** second = ibv_get_device_list(nullptr);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(first[0], second[0]);
  ibv_free_device_list(first);
  EXPECT_STREQ(ibv_get_device_name(second[0]), "a");
  ibv_free_device_list(second);
}

TEST_F(DeviceList, MayBeReorderedByTheProgram) {
  ::setenv("FAKE_DEVICES", "a,b", 1);
  ibv_device** list = ibv_get_device_list(nullptr);
  ASSERT_NE(list, nullptr);
  list[0] = list[1];
  list[1] = nullptr;
  ibv_free_device_list(list);  // neither leaks nor frees twice
}

TEST_F(DeviceList, KeepsADeviceWhileAContextIsOpen) {
  ::setenv("FAKE_DEVICES", "a", 1);
  ibv_device** list = ibv_get_device_list(nullptr);
  ASSERT_NE(list, nullptr);
  ibv_context* context = ibv_open_device(list[0]);
  ASSERT_NE(context, nullptr);
  ibv_free_device_list(list);
  ::setenv("FAKE_DEVICES", "b", 1);
  list = ibv_get_device_list(nullptr);
  ASSERT_NE(list, nullptr);
  EXPECT_STREQ(ibv_get_device_name(list[0]), "b");
  EXPECT_STREQ(ibv_get_device_name(context->device), "a");
  ibv_free_device_list(list);
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST_F(DeviceList, PassesOnWhyADeviceDoesNotOpen) {
  ::setenv("FAKE_DEVICES", "broken", 1);
  ibv_device** list = ibv_get_device_list(nullptr);
  ASSERT_NE(list, nullptr);
  errno = 0;
  EXPECT_EQ(ibv_open_device(list[0]), nullptr);
  EXPECT_EQ(errno, EACCES);
  ibv_free_device_list(list);
}

TEST_F(DeviceList, LeavesOutANameThatDoesNotFit) {
  ::setenv("FAKE_DEVICES", (std::string(IBV_SYSFS_NAME_MAX, 'x') + ",a").c_str(), 1);
  ibv_device** list = ibv_get_device_list(nullptr);
  ASSERT_NE(list, nullptr);
  EXPECT_STREQ(ibv_get_device_name(list[0]), "a");
  ibv_free_device_list(list);
}

TEST_F(DeviceList, MayBeAskedForByManyThreads) {
  ::setenv("FAKE_DEVICES", "a,b", 1);
  std::atomic<int> good = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&good] {
      for (int i = 0; i < 50; ++i) {
        ibv_device** list = ibv_get_device_list(nullptr);
        ibv_context* context = ibv_open_device(list[1]);
        ibv_free_device_list(list);
        if (std::strcmp(ibv_get_device_name(context->device), "b") == 0) ++good;
        ibv_close_device(context);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 200);
}

TEST_F(DeviceList, AcceptsNoList) { ibv_free_device_list(nullptr); }

}  // namespace
