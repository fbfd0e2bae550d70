#include "core/verbs/types.h"

#include <gtest/gtest.h>

namespace vrdma::verbs {
namespace {

TEST(Opcodes, HaveTheirProperties) {
  struct Row {
    Opcode op;
    bool send, write, atomic, immediate, receives;
  };
  for (const Row& row : {Row{Opcode::kRdmaWrite, false, true, false, false, false},
                         Row{Opcode::kRdmaWriteWithImm, false, true, false, true, true},
                         Row{Opcode::kAtomicWrite, false, true, false, false, false},
                         Row{Opcode::kSend, true, false, false, false, true},
                         Row{Opcode::kSendWithImm, true, false, false, true, true},
                         Row{Opcode::kRdmaRead, false, false, false, false, false},
                         Row{Opcode::kCompareSwap, false, false, true, false, false},
                         Row{Opcode::kFetchAdd, false, false, true, false, false}}) {
    EXPECT_EQ(is_send(row.op), row.send);
    EXPECT_EQ(is_write(row.op), row.write);
    EXPECT_EQ(is_atomic(row.op), row.atomic);
    EXPECT_EQ(has_immediate(row.op), row.immediate);
    EXPECT_EQ(consumes_receive(row.op), row.receives);
    EXPECT_LT(static_cast<uint8_t>(row.op), kOpcodeCount);
  }
}

}  // namespace
}  // namespace vrdma::verbs
