// Fixture for tests on the devices of fake_device.cc, by verbs.h and the exported symbols only.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cstdlib>

// An open context on the fake device "fake0".
class Fake : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("FAKE_DEVICES", "fake0", 1);
    ibv_device** list = ibv_get_device_list(nullptr);
    ASSERT_NE(list, nullptr);
    context_ = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    ASSERT_NE(context_, nullptr);
  }
  void TearDown() override {
    if (context_ != nullptr) {
      EXPECT_EQ(ibv_close_device(context_), 0);
    }
    ::unsetenv("FAKE_DEVICES");
  }

  ibv_context* context_ = nullptr;
};
