// Times that a worker or the daemon determines, in microseconds, as lines of JSON:
//
//   bench_victim write SECONDS   an 8-byte WRITE to itself by a worker, from ibv_post_send until
//   its
//                                completion was polled; it sleeps on its completion channel
//   bench_victim open SECONDS    ibv_open_device
//   bench_victim start NETNS NETDEV COUNT
//                                ibv_get_device_list and ibv_open_device with one vdevice: a line
//                                of the COUNT times in which the program that connects starts the
//                                worker, then one of those in which the worker runs. Creates a
//                                vdevice of another tenant for each.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "api/client.h"
#include "tests/bench/device.h"

namespace vrdma::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Of `once`, which returns when it began.
std::vector<double> times_of(const std::function<Clock::time_point()>& once, double seconds) {
  std::vector<double> times;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (times.empty() || Clock::now() < end) {
    const auto began = once();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - began).count());
  }
  return times;
}

std::vector<double> writes(double seconds) {
  const Buffer buffer(4096);
  const ibv_mr* mr = register_memory(buffer);
  ibv_comp_channel* channel = ibv_create_comp_channel(device().context);
  if (channel == nullptr) fail("ibv_create_comp_channel");
  ibv_cq* cq = make_cq(16, channel);
  ibv_qp* qp = make_qp(cq, 16);
  join_itself(qp);
  return times_of(
      [&] {
        if (ibv_req_notify_cq(cq, 0) != 0) fail("ibv_req_notify_cq");
        const auto began = Clock::now();
        post(qp, mr, IBV_WR_RDMA_WRITE, true);
        ibv_cq* which = nullptr;
        void* context = nullptr;
        if (ibv_get_cq_event(channel, &which, &context) != 0) fail("ibv_get_cq_event");
        ibv_ack_cq_events(which, 1);
        drain(cq, 1);
        return began;
      },
      seconds);
}

std::vector<double> openings(double seconds) {
  ibv_device* const opened = device().context->device;
  ibv_context* context = nullptr;
  return times_of(
      [&] {
        if (context != nullptr) ibv_close_device(context);
        const auto began = Clock::now();
        context = ibv_open_device(opened);
        if (context == nullptr) fail("ibv_open_device");
        return began;
      },
      seconds);
}

double list_and_open() {
  const auto began = Clock::now();
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  if (list == nullptr || count != 1) fail("ibv_get_device_list does not find the vdevice");
  ibv_context* const context = ibv_open_device(list[0]);
  const double time = std::chrono::duration<double, std::micro>(Clock::now() - began).count();
  if (context == nullptr) fail("ibv_open_device");
  ibv_close_device(context);
  ibv_free_device_list(list);
  return time;
}

template <typename T>
T value_of(base::Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "bench_victim: %s\n", result.error().message().c_str());
    std::exit(1);
  }
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

struct Starts {
  std::vector<double> first, later;
};

Starts starts(const std::string& netns, const std::string& netdev, size_t count) {
  auto client = value_of(api::Client::connect(api::default_run_dir()));
  Starts times;
  for (size_t i = 0; i < count; ++i) {
    v1::CreateVdevRequest request;
    request.set_name("start");
    request.set_netns(netns);
    request.set_netdev(netdev);
    request.set_tenant("start" + std::to_string(i));
    (void)value_of(client.create_vdev(request));
    times.first.push_back(list_and_open());
    times.later.push_back(list_and_open());
    value_of(client.delete_vdev("start"));
  }
  return times;
}

void print(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const auto part = [&](double share) {
    return times[std::min(times.size() - 1,
                          static_cast<size_t>(static_cast<double>(times.size()) * share))];
  };
  std::printf(R"({"count": %zu, "median": %.1f, "p99": %.1f, "p999": %.1f, "max": %.1f})"
              "\n",
              times.size(), part(0.5), part(0.99), part(0.999), times.back());
}

}  // namespace
}  // namespace vrdma::bench

int main(int argc, char** argv) {
  using namespace vrdma::bench;
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "start" && argc == 5) {
    const Starts times = starts(argv[2], argv[3], std::strtoull(argv[4], nullptr, 10));
    print(times.first);
    print(times.later);
  } else if (what == "write" && argc == 3) {
    print(writes(std::atof(argv[2])));
  } else if (what == "open" && argc == 3) {
    print(openings(std::atof(argv[2])));
  } else {
    return 2;
  }
  return 0;
}
