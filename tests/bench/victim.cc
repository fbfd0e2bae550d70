// A neighbour's times, in microseconds, as one line of JSON:
//
//   bench_victim write SECONDS   an 8-byte WRITE to itself by a worker, from ibv_post_send until
//   its
//                                completion was polled; it sleeps on its completion channel
//   bench_victim open SECONDS    ibv_open_device
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

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
  if (argc != 3) return 2;
  const double seconds = std::atof(argv[2]);
  print(std::string(argv[1]) == "write" ? writes(seconds) : openings(seconds));
  return 0;
}
