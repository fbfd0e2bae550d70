// The plugin between a vrdmad and a kubelet that the test serves.
#include "cli/kubernetes/plugin/plugin.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <kubelet/deviceplugin.grpc.pb.h>
#include <vrdma/v1/admin.grpc.pb.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/unit/core/base/run_until.h"
#include "tests/unit/core/base/temp_dir.h"

namespace vrdma::cli::kubernetes {
namespace {

using testing::HasSubstr;

std::unique_ptr<grpc::Server> serve(grpc::Service& service, const std::string& path) {
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  builder.AddListeningPort("unix:" + path, grpc::InsecureServerCredentials());
  return builder.BuildAndStart();
}

class FakeVrdmad final : public v1::Admin::Service {
 public:
  grpc::Status WatchClasses(grpc::ServerContext* context, const v1::ListClassesRequest*,
                            grpc::ServerWriter<v1::ListClassesResponse>* writer) override {
    std::unique_lock lock(mutex_);
    while (!context->IsCancelled()) {
      if (!silent_) writer->Write(classes_);
      changed_.wait_for(lock, std::chrono::milliseconds(10));
    }
    return grpc::Status::OK;
  }
  void set(const v1::ListClassesResponse& classes) {
    const std::lock_guard lock(mutex_);
    classes_ = classes;
    changed_.notify_all();
  }
  void be_silent(bool silent) {
    const std::lock_guard lock(mutex_);
    silent_ = silent;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  v1::ListClassesResponse classes_;
  bool silent_ = false;  // as one that is stopped
};

// Reads the devices of each plugin that registers, as a kubelet does.
class FakeKubelet final : public v1beta1::Registration::Service {
 public:
  // `refusal`: the answer to Register; empty: it accepts.
  explicit FakeKubelet(std::string dir, std::string refusal = "")
      : dir_(std::move(dir)),
        refusal_(std::move(refusal)),
        server_(serve(*this, dir_ + "/kubelet.sock")) {}
  ~FakeKubelet() override {
    server_->Shutdown(std::chrono::system_clock::now());
    end_streams();
    for (auto& thread : threads_) thread.join();
  }

  grpc::Status Register(grpc::ServerContext*, const v1beta1::RegisterRequest* request,
                        v1beta1::Empty*) override {
    const std::lock_guard lock(mutex_);
    ++registered;
    if (!refusal_.empty()) return {grpc::StatusCode::UNKNOWN, refusal_};
    stub_ = v1beta1::DevicePlugin::NewStub(grpc::CreateChannel(
        "unix:" + dir_ + "/" + request->endpoint(), grpc::InsecureChannelCredentials()));
    threads_.emplace_back([this, stub = stub_] { read(*stub); });
    return grpc::Status::OK;
  }
  void end_streams() {
    const std::lock_guard lock(mutex_);
    for (auto* stream : streams_) stream->TryCancel();
  }
  // The last list, as "Healthy x 3".
  std::string devices() {
    const std::lock_guard lock(mutex_);
    if (list_.devices().empty()) return "none";
    return list_.devices(0).health() + " x " + std::to_string(list_.devices_size());
  }
  grpc::Status allocate(const std::vector<std::string>& ids) {
    grpc::ClientContext context;
    v1beta1::AllocateRequest request;
    v1beta1::AllocateResponse response;
    auto& container = *request.add_container_requests();
    for (const auto& id : ids) container.add_devices_ids(id);
    const auto stub = [this] {
      const std::lock_guard lock(mutex_);
      return stub_;
    }();
    return stub->Allocate(&context, request, &response);
  }

  std::atomic<int> registered = 0;

 private:
  void read(v1beta1::DevicePlugin::Stub& stub) {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1beta1::ListAndWatchResponse>> reader;
    v1beta1::ListAndWatchResponse list;
    {
      const std::lock_guard lock(mutex_);
      streams_.push_back(&context);
    }
    reader = stub.ListAndWatch(&context, {});
    while (reader->Read(&list)) {
      const std::lock_guard lock(mutex_);
      list_ = list;
    }
    (void)reader->Finish();
    const std::lock_guard lock(mutex_);
    std::erase(streams_, &context);
  }

  const std::string dir_, refusal_;
  std::mutex mutex_;
  std::shared_ptr<v1beta1::DevicePlugin::Stub> stub_;  // of the last plugin
  std::vector<grpc::ClientContext*> streams_;
  std::vector<std::thread> threads_;
  v1beta1::ListAndWatchResponse list_;
  std::unique_ptr<grpc::Server> server_;  // last
};

class PluginTest : public testing::Test {
 protected:
  PluginTest() {
    std::filesystem::create_directory(dir_ / "kubelet");
    test::write_file(dir_ / "cdi.json", R"({"devices":[{"name":"small","containerEdits":
        {"hooks":[{"path":"/bin/true"}]}}]})");
    offer(3);
    vrdmad_server_ = serve(vrdmad_, dir_ / "admin.sock");
  }
  ~PluginTest() override {
    plugin_.reset();
    vrdmad_server_->Shutdown(std::chrono::system_clock::now());
  }

  void offer(uint32_t devices, const std::string& error = "") {
    v1::ListClassesResponse classes;
    auto& small = *classes.add_classes();
    small.set_name("small");
    small.set_error(error);
    small.set_parent_state("ACTIVE");
    small.set_devices(devices);
    small.set_free(UINT32_MAX);
    vrdmad_.set(classes);
  }
  std::unique_ptr<Plugin> start_plugin() {
    auto made =
        Plugin::start(*loop_, {dir_.path(), dir_ / "kubelet", dir_ / "cdi.json", "vrdma.io"});
    EXPECT_TRUE(made);
    return std::move(*made);
  }
  void start(const std::string& refusal = "") {
    kubelet_ = std::make_unique<FakeKubelet>(dir_ / "kubelet", refusal);
    plugin_ = start_plugin();
  }
  bool shows(const std::string& devices) {
    return test::run_until(*loop_, [&] { return kubelet_->devices() == devices; });
  }
  bool is_ready() {
    return test::run_until(*loop_, [&] { return plugin_->status().not_ready.empty(); });
  }

  const test::TempDir dir_;
  FakeVrdmad vrdmad_;
  std::unique_ptr<grpc::Server> vrdmad_server_;
  std::unique_ptr<base::EventLoop> loop_ = std::move(*base::EventLoop::create());
  std::unique_ptr<FakeKubelet> kubelet_;
  std::unique_ptr<Plugin> plugin_;
};

TEST_F(PluginTest, advertises_a_class_and_its_changes) {
  start();
  EXPECT_TRUE(shows("Healthy x 3"));
  EXPECT_TRUE(is_ready());
  offer(5);
  EXPECT_TRUE(shows("Healthy x 5"));
  offer(0, "no such parent");
  EXPECT_TRUE(shows("Unhealthy x 5")) << "a mistake takes no device away";
  offer(5);
  EXPECT_TRUE(shows("Healthy x 5"));
  vrdmad_.set({});
  EXPECT_TRUE(shows("Unhealthy x 5")) << "the class has gone";
  offer(2);
  EXPECT_TRUE(shows("Healthy x 2"));
  std::filesystem::remove(dir_ / "cdi.json");
  EXPECT_TRUE(shows("Unhealthy x 2"));
}

TEST_F(PluginTest, allocates_and_counts) {
  start();
  ASSERT_TRUE(is_ready());
  EXPECT_TRUE(kubelet_->allocate({"small-1"}).ok());
  EXPECT_THAT(kubelet_->allocate({"small-1", "small-2"}).error_message(),
              HasSubstr("ask for vrdma.io/small: 1"));
  EXPECT_TRUE(test::run_until(*loop_, [&] {
    const auto small = plugin_->status().resources.at(0);
    return small.allocations == 1 && small.refusals == std::map<std::string, uint64_t>{{"many", 1}};
  }));
}

TEST_F(PluginTest, survives_a_restart_of_the_kubelet) {
  start();
  ASSERT_TRUE(is_ready());
  kubelet_.reset();
  for (const auto& file : std::filesystem::directory_iterator(dir_ / "kubelet"))
    std::filesystem::remove(file);
  kubelet_ = std::make_unique<FakeKubelet>(dir_ / "kubelet");
  EXPECT_TRUE(shows("Healthy x 3"));
  EXPECT_EQ(plugin_->status().kubelet_restarts, 1u);
  std::filesystem::rename(dir_ / "kubelet", dir_ / "old");
  std::filesystem::create_directory(dir_ / "kubelet");
  kubelet_.reset();
  kubelet_ = std::make_unique<FakeKubelet>(dir_ / "kubelet");
  EXPECT_TRUE(shows("Healthy x 3")) << "in another directory";
  plugin_.reset();
  EXPECT_EQ(kubelet_->devices(), "Healthy x 3") << "no empty list at the end";
}

TEST_F(PluginTest, registers_again_when_its_stream_or_its_socket_ends) {
  start();
  ASSERT_TRUE(is_ready());
  kubelet_->end_streams();
  EXPECT_TRUE(test::run_until(*loop_, [&] { return kubelet_->registered == 2; }));
  ASSERT_TRUE(is_ready());
  for (const auto& file : std::filesystem::directory_iterator(dir_ / "kubelet"))
    if (file.path().filename() != "kubelet.sock") std::filesystem::remove(file);
  EXPECT_TRUE(test::run_until(*loop_, [&] { return kubelet_->registered == 3; }));
  EXPECT_TRUE(is_ready());
}

TEST_F(PluginTest, says_why_the_kubelet_refuses_it) {
  start("unsupported version");
  EXPECT_TRUE(test::run_until(*loop_, [&] { return kubelet_->registered >= 2; }));
  EXPECT_TRUE(test::run_until(*loop_, [&] {
    return plugin_->status().not_ready ==
           "vrdma.io/small: the kubelet refuses it: unsupported version";
  }));
}

TEST_F(PluginTest, a_second_instance_takes_over) {
  start();
  ASSERT_TRUE(is_ready());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // so that file times differ
  auto next = start_plugin();
  EXPECT_TRUE(test::run_until(
      *loop_, [&] { return next->status().not_ready.empty() && kubelet_->registered == 2; }));
  kubelet_->end_streams();  // of both
  EXPECT_TRUE(test::run_until(*loop_, [&] { return kubelet_->registered == 3; }));
  EXPECT_TRUE(is_ready()) << "it yields";
  EXPECT_EQ(plugin_->status().resources.at(0).registered, 1u);
  next.reset();
  EXPECT_TRUE(
      test::run_until(*loop_, [&] { return plugin_->status().resources.at(0).registered == 2; }));
}

TEST_F(PluginTest, an_absence_of_vrdmad_is_unhealthy_after_three_seconds) {
  start();
  ASSERT_TRUE(shows("Healthy x 3"));
  vrdmad_server_->Shutdown(std::chrono::system_clock::now());
  const auto gone = loop_->now();
  EXPECT_TRUE(shows("Unhealthy x 3"));
  EXPECT_GE(loop_->now() - gone, std::chrono::milliseconds(2900));
  EXPECT_EQ(plugin_->status().resources.at(0).unhealthy->reason, "vrdmad");
  vrdmad_server_ = serve(vrdmad_, dir_ / "admin.sock");
  EXPECT_TRUE(shows("Healthy x 3"));
}

TEST_F(PluginTest, a_vrdmad_that_does_not_answer_is_absent) {
  start();
  ASSERT_TRUE(shows("Healthy x 3"));
  vrdmad_.be_silent(true);
  EXPECT_TRUE(shows("Unhealthy x 3"));
  EXPECT_EQ(plugin_->status().resources.at(0).unhealthy->sentence, "vrdmad does not answer");
  vrdmad_.be_silent(false);
  EXPECT_TRUE(shows("Healthy x 3"));
}

}  // namespace
}  // namespace vrdma::cli::kubernetes
