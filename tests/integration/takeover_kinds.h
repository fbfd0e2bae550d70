// What vrdma_takeover_kinds needs of every kind of object.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace vrdma::kinds {

[[noreturn]] inline void fail(const std::string& what, int error = 0) {
  std::fprintf(stderr, "%s: %s\n", what.c_str(), std::strerror(error));
  std::_Exit(1);
}
template <class T>
T* made(T* object, const char* what) {
  if (object == nullptr) fail(what, errno);
  return object;
}
inline void expect_0(int error, const char* what) {
  if (error != 0) fail(what, error);
}
inline void expect(bool holds, const char* what) {
  if (!holds) fail(what);
}

struct Options {
  std::string device;
  uint8_t gid_index = 0;
  std::string peer;
};

inline volatile std::sig_atomic_t g_over = 0, g_half = 0;  // SIGTERM and SIGUSR1 came

inline ibv_context* open_device(const std::string& name) {
  int count = 0;
  ibv_device** devices = made(ibv_get_device_list(&count), "list devices");
  for (int i = 0; i < count; ++i)
    if (ibv_get_device_name(devices[i]) == name)
      return made(ibv_open_device(devices[i]), "open the device");
  fail("there is no " + name);
}

inline ibv_wc completion(ibv_cq* cq) {
  ibv_wc wc{};
  while (ibv_poll_cq(cq, 1, &wc) == 0) {
  }
  return wc;
}
inline ibv_wc success(ibv_cq* cq, const char* what) {
  const ibv_wc wc = completion(cq);
  if (wc.status != IBV_WC_SUCCESS) fail(std::string(what) + ": " + ibv_wc_status_str(wc.status));
  return wc;
}
inline void post(ibv_qp* qp, ibv_send_wr wr) {
  ibv_send_wr* bad = nullptr;
  wr.send_flags = IBV_SEND_SIGNALED;
  expect_0(ibv_post_send(qp, &wr, &bad), "post a send");
}
inline void post_receive(ibv_qp* qp, ibv_sge sge, uint64_t id = 0) {
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.wr_id = id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  expect_0(ibv_post_recv(qp, &wr, &bad), "post a receive");
}

inline uint8_t pattern(uint64_t round, size_t at) {
  return static_cast<uint8_t>(round * 31 + at * 7 + 1);
}
inline void fill(uint8_t* at, size_t length, uint64_t round) {
  for (size_t i = 0; i < length; ++i) at[i] = pattern(round, i);
}
inline void check(const uint8_t* at, size_t length, uint64_t round, const char* what) {
  for (size_t i = 0; i < length; ++i) expect(at[i] == pattern(round, i), what);
}

// Each uses its objects until SIGTERM and returns how often it did. takeover_messages.cc:
uint64_t use_frames(const Options& options);
uint64_t use_mads(const Options& options);

}  // namespace vrdma::kinds
