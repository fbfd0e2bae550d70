// racer DEVICE THREADS MILLISECONDS SEED: threads of one context that create and destroy objects of
// every kind at the same time, at the limits of their quota. Half of the threads leave theirs to
// the end of the process.
//
// Ends with 1 if a call fails with another errno than that of an exhausted quota.
#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "tests/integration/open_device.h"

namespace {

using Clock = std::chrono::steady_clock;

void check(bool holds, const char* what) {
  if (holds || errno == ENOMEM) return;
  std::fprintf(stderr, "racer: %s: %s\n", what, std::strerror(errno));
  std::_Exit(1);
}

// Objects of one kind, and how they end.
template <class T>
class Kind {
 public:
  Kind(const char* name, int (*end)(T*), std::mt19937& any) : name_(name), end_(end), any_(any) {}
  void add(T* made) {
    check(made != nullptr, name_);
    if (made != nullptr) all_.push_back(made);
  }
  [[nodiscard]] bool empty() const { return all_.empty(); }
  T* one() { return all_[any_() % all_.size()]; }
  // One that others use stays.
  void end_one() {
    if (all_.empty()) return;
    T*& chosen = all_[any_() % all_.size()];
    errno = end_(chosen);
    check(errno == 0 || errno == EBUSY, name_);
    if (errno == EBUSY) return;
    chosen = all_.back();
    all_.pop_back();
  }
  void end_all() {
    for (T* each : all_) check(end_(each) == 0, name_);
  }

 private:
  const char* name_;
  int (*end_)(T*);
  std::mt19937& any_;
  std::vector<T*> all_;
};

void work(ibv_context* context, unsigned seed, Clock::time_point end) {
  std::mt19937 any(seed);
  const auto up_to = [&any](unsigned most) { return 1 + static_cast<uint32_t>(any() % most); };
  std::vector<char> memory(1u << 20);
  Kind<ibv_pd> pds("pd", ibv_dealloc_pd, any);
  Kind<ibv_cq> cqs("cq", ibv_destroy_cq, any);
  Kind<ibv_qp> qps("qp", ibv_destroy_qp, any);
  Kind<ibv_srq> srqs("srq", ibv_destroy_srq, any);
  Kind<ibv_mr> mrs("mr", ibv_dereg_mr, any);
  Kind<ibv_ah> ahs("ah", ibv_destroy_ah, any);
  Kind<ibv_mw> mws("mw", ibv_dealloc_mw, any);
  ibv_ah_attr ah{};
  ah.is_global = 1;
  ah.port_num = 1;
  check(ibv_query_gid(context, 1, 0, &ah.grh.dgid) == 0, "gid");
  while (Clock::now() < end) {
    const bool no_pd = pds.empty();
    switch (any() % 14) {
      case 0:
        pds.add(ibv_alloc_pd(context));
        break;
      case 1:
        cqs.add(ibv_create_cq(context, static_cast<int>(up_to(64)), nullptr, nullptr, 0));
        break;
      case 2:
      case 3:
      case 4: {
        if (no_pd || cqs.empty()) break;
        ibv_qp_init_attr init{};
        init.send_cq = cqs.one();
        init.recv_cq = cqs.one();
        init.cap = {up_to(128), up_to(128), 1, 1, 0};
        init.qp_type = any() % 3 == 0 ? IBV_QPT_UD : IBV_QPT_RC;
        if (init.qp_type == IBV_QPT_RC && !srqs.empty() && any() % 2 == 0) init.srq = srqs.one();
        qps.add(ibv_create_qp(pds.one(), &init));
        break;
      }
      case 5: {
        if (no_pd) break;
        ibv_srq_init_attr init{};
        init.attr = {up_to(64), 1, 0};
        srqs.add(ibv_create_srq(pds.one(), &init));
        break;
      }
      case 6:
      case 7:
        if (!no_pd) {
          const size_t at = any() % memory.size();
          mrs.add(ibv_reg_mr(pds.one(), &memory[at], 1 + any() % (memory.size() - at),
                             IBV_ACCESS_LOCAL_WRITE));
        }
        break;
      case 8:
        if (!no_pd) ahs.add(ibv_create_ah(pds.one(), &ah));
        break;
      case 9:
        if (!no_pd) mws.add(ibv_alloc_mw(pds.one(), IBV_MW_TYPE_2));
        break;
      case 10:
        qps.end_one();
        qps.end_one();
        break;
      case 11:
        mrs.end_one();
        srqs.end_one();
        break;
      case 12:
        ahs.end_one();
        mws.end_one();
        break;
      default:
        cqs.end_one();
        pds.end_one();
    }
  }
  if (seed % 2 == 0) return;
  qps.end_all();
  srqs.end_all();
  cqs.end_all();
  mrs.end_all();
  ahs.end_all();
  mws.end_all();
  pds.end_all();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  ibv_context* const context = open_device(argv[1]);
  if (context == nullptr) return 1;
  const auto end = Clock::now() + std::chrono::milliseconds(std::atoi(argv[3]));
  std::vector<std::thread> threads;
  for (int i = 0; i < std::atoi(argv[2]); ++i)
    threads.emplace_back(work, context, static_cast<unsigned>(std::atoi(argv[4]) * 100 + i), end);
  for (auto& each : threads) each.join();
}
