// The test that provokes each completion status of verbs. These tests also show the queue pair at
// work again after RESET (or, for an unreliable one, after SQE).
#include <infiniband/verbs.h>

#include <set>
#include <string>
#include <vector>

#include "tests/conformance/test.h"

namespace conformance {

namespace {

struct Row {
  ibv_wc_status status;
  std::vector<const char*> tests;  // "group.name"
  const char* why_not = nullptr;   // if there is no test
};

const std::vector<Row>& rows() {
  constexpr auto kDatagramsOnly = "of reliable datagrams, which no device has";
  constexpr auto kTags = "of tag matching, which is not offered";
  static const std::vector<Row> kRows{
      {IBV_WC_SUCCESS, {"errors.flush"}},
      {IBV_WC_LOC_LEN_ERR, {"errors.local_length", "errors.receive_too_short"}},
      {IBV_WC_LOC_QP_OP_ERR, {"errors.read_without_resources"}},
      {IBV_WC_LOC_PROT_ERR,
       {"errors.local_protection", "errors.receive_protection", "errors.send_queue_error"}},
      {IBV_WC_WR_FLUSH_ERR, {"errors.flush", "errors.send_queue_error"}},
      {IBV_WC_REM_INV_REQ_ERR,
       {"errors.receive_too_short", "errors.misaligned_atomic", "xrc.no_such_srq"}},
      {IBV_WC_REM_ACCESS_ERR, {"errors.remote_key", "errors.remote_range", "errors.region_access"}},
      {IBV_WC_REM_OP_ERR, {"errors.receive_protection"}},
      {IBV_WC_RETRY_EXC_ERR, {"errors.peer_destroys_its_queue_pair"}},
      {IBV_WC_RNR_RETRY_EXC_ERR, {"progress.finite_rnr_retries"}},
      {IBV_WC_LOC_EEC_OP_ERR, {}, kDatagramsOnly},
      {IBV_WC_LOC_RDD_VIOL_ERR, {}, kDatagramsOnly},
      {IBV_WC_REM_INV_RD_REQ_ERR, {}, kDatagramsOnly},
      {IBV_WC_INV_EECN_ERR, {}, kDatagramsOnly},
      {IBV_WC_INV_EEC_STATE_ERR, {}, kDatagramsOnly},
      {IBV_WC_REM_ABORT_ERR, {}, "a responder aborts only reliable datagrams"},
      {IBV_WC_MW_BIND_ERR, {"protection.bind_errors"}},
      {IBV_WC_BAD_RESP_ERR, {}, "no responder of ours answers what was not asked"},
      {IBV_WC_LOC_ACCESS_ERR, {}, "a receive that may not be written is LOC_PROT_ERR"},
      {IBV_WC_FATAL_ERR, {}, "a device that dies flushes, and says so by DEVICE_FATAL"},
      {IBV_WC_RESP_TIMEOUT_ERR, {}, "a requester that hears nothing ends in RETRY_EXC_ERR"},
      {IBV_WC_GENERAL_ERR, {}, "every error has one of the statuses above"},
      {IBV_WC_TM_ERR, {}, kTags},
      {IBV_WC_TM_RNDV_INCOMPLETE, {}, kTags},
  };
  return kRows;
}

}  // namespace

CONFORMANCE_TEST(errors, every_status_has_its_test) {
  std::set<std::string> tests;
  for (const Test& test : all_tests()) tests.insert(std::string(test.group) + "." + test.name);
  std::set<int> statuses;
  for (const Row& row : rows()) {
    CHECK(statuses.insert(row.status).second);
    CHECK(row.tests.empty() == (row.why_not != nullptr));
    for (const char* test : row.tests)
      if (!tests.contains(test)) fail(__FILE__, __LINE__, std::string("there is no ") + test);
  }
  for (int status = IBV_WC_SUCCESS; status <= IBV_WC_TM_RNDV_INCOMPLETE; ++status)
    if (!statuses.contains(status))
      fail(__FILE__, __LINE__,
           std::string("nothing is said of '") +
               ibv_wc_status_str(static_cast<ibv_wc_status>(status)) + "'");
}

}  // namespace conformance
