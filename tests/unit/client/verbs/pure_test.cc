// Pure functions: compares the drop-in's with the real library's, value by value.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace {

void* real_library() {
  for (const char* path :
       {"/usr/lib/x86_64-linux-gnu/libibverbs.so.1", "/usr/lib/aarch64-linux-gnu/libibverbs.so.1",
        "/usr/lib64/libibverbs.so.1", "/usr/lib/libibverbs.so.1"})
    if (void* handle = ::dlopen(path, RTLD_NOW | RTLD_LOCAL); handle != nullptr) return handle;
  return nullptr;
}

class Pure : public testing::Test {
 protected:
  void SetUp() override {
    real_ = real_library();
    if (real_ == nullptr) GTEST_SKIP() << "there is no real libibverbs.so.1 to compare with";
    // The fake library is loaded already, because the executable is linked with it.
    ours_ = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
    ASSERT_NE(ours_, nullptr);
    ASSERT_NE(ours_, real_);
  }

  template <class Function>
  void both(const char* name, Function*& ours, Function*& real) {
    ours = reinterpret_cast<Function*>(::dlsym(ours_, name));
    real = reinterpret_cast<Function*>(::dlsym(real_, name));
    ASSERT_NE(ours, nullptr) << name;
    ASSERT_NE(real, nullptr) << name;
    ASSERT_NE(ours, real) << name << " is not the drop-in's";
  }

  void* real_ = nullptr;
  void* ours_ = nullptr;
};

TEST_F(Pure, Strings) {
  for (const char* name :
       {"ibv_node_type_str", "ibv_port_state_str", "ibv_event_type_str", "ibv_wc_status_str"}) {
    const char* (*ours)(int) = nullptr;
    const char* (*real)(int) = nullptr;
    both(name, ours, real);
    for (int value = -300; value < 300; ++value) {
      // Debian 12's library lacks this event.
      if (std::strcmp(ours(value), "Device link speed change") == 0) continue;
      EXPECT_STREQ(ours(value), real(value)) << name << " of " << value;
    }
  }
}

TEST_F(Pure, Rates) {
  for (const char* name : {"ibv_rate_to_mult", "ibv_rate_to_mbps", "mult_to_ibv_rate"}) {
    int (*ours)(int) = nullptr;
    int (*real)(int) = nullptr;
    both(name, ours, real);
    for (int value = -10; value < 2000; ++value)
      EXPECT_EQ(ours(value), real(value)) << name << " of " << value;
  }
  int (*ours)(int) = nullptr;
  int (*real)(int) = nullptr;
  both("mbps_to_ibv_rate", ours, real);
  for (int value = -10; value < 1'500'000; ++value) ASSERT_EQ(ours(value), real(value)) << value;
}

// All four copy between structures below 256 bytes. Bytes beside the fields must not change.
TEST_F(Pure, CopiesFromAndToTheKernel) {
  for (const char* name : {"ibv_copy_ah_attr_from_kern", "ibv_copy_qp_attr_from_kern",
                           "ibv_copy_path_rec_from_kern", "ibv_copy_path_rec_to_kern"}) {
    void (*ours)(void*, void*) = nullptr;
    void (*real)(void*, void*) = nullptr;
    both(name, ours, real);
    unsigned int seed = 1;
    for (int round = 0; round < 100; ++round) {
      alignas(8) std::array<uint8_t, 256> from{}, to_ours{}, to_real{};
      for (uint8_t& byte : from) byte = static_cast<uint8_t>(::rand_r(&seed));
      to_ours.fill(0xee);
      to_real.fill(0xee);
      ours(to_ours.data(), from.data());
      real(to_real.data(), from.data());
      EXPECT_EQ(to_ours, to_real) << name;
    }
  }
}

TEST_F(Pure, SysfsFiles) {
  int (*ours)(const char*, const char*, char*, size_t) = nullptr;
  int (*real)(const char*, const char*, char*, size_t) = nullptr;
  both("ibv_read_sysfs_file", ours, real);
  char dir[] = "/tmp/vrdma-sysfs-XXXXXX";
  ASSERT_NE(::mkdtemp(dir), nullptr);
  const std::string file = std::string(dir) + "/f";
  for (const std::string& text : {std::string("abc\n"), std::string("abc"), std::string(),
                                  std::string("\n"), std::string("a\nb\n")}) {
    std::ofstream(file) << text;
    for (size_t size = 0; size < 8; ++size) {
      std::array<char, 16> to_ours{}, to_real{};
      to_ours.fill('x');
      to_real.fill('x');
      EXPECT_EQ(ours(dir, "f", to_ours.data(), size), real(dir, "f", to_real.data(), size))
          << text << ' ' << size;
      EXPECT_EQ(to_ours, to_real) << text << ' ' << size;
    }
  }
  EXPECT_EQ(ours(dir, "none", nullptr, 0), -1);
  ::unlink(file.c_str());
  ::rmdir(dir);

  const char* (*our_path)() = nullptr;
  const char* (*real_path)() = nullptr;
  both("ibv_get_sysfs_path", our_path, real_path);
  EXPECT_STREQ(our_path(), real_path());
}

TEST_F(Pure, OldVersionsAreThereAndHidden) {
  EXPECT_NE(::dlvsym(ours_, "ibv_create_qp", "IBVERBS_1.0"), nullptr);
  EXPECT_NE(::dlvsym(ours_, "ibv_register_driver", "IBVERBS_1.1"), nullptr);
  EXPECT_NE(::dlvsym(ours_, "ibv_create_qp", "IBVERBS_1.0"), ::dlsym(ours_, "ibv_create_qp"));
  EXPECT_EQ(::dlsym(ours_, "ibv_create_qp"), ::dlvsym(ours_, "ibv_create_qp", "IBVERBS_1.1"));
}

}  // namespace
