#include "core/ipc/messages.h"

#include <algorithm>

namespace vrdma::ipc {

size_t request_size(Call call) {
  switch (call) {
    case Call::kHello:
      return sizeof(HelloRequest);
    case Call::kResume:
      return sizeof(ResumeRequest);
    case Call::kQueryGids:
      return sizeof(GidsRequest);
    case Call::kRegMr:
      return sizeof(RegMrRequest);
    case Call::kReregMr:
      return sizeof(ReregMrRequest);
    case Call::kHold:
      return sizeof(HoldRequest);
    case Call::kAllocMw:
      return sizeof(AllocMwRequest);
    case Call::kImportMr:
      return sizeof(ImportMrRequest);
    case Call::kCreateCq:
      return sizeof(CreateCqRequest);
    case Call::kResizeCq:
      return sizeof(ResizeCqRequest);
    case Call::kCreateSrq:
      return sizeof(CreateSrqRequest);
    case Call::kModifySrq:
      return sizeof(ModifySrqRequest);
    case Call::kCreateQp:
      return sizeof(CreateQpRequest);
    case Call::kModifyQp:
      return sizeof(ModifyQpRequest);
    case Call::kCreateAh:
      return sizeof(verbs::AddressVector);
    case Call::kAttachMcast:
    case Call::kDetachMcast:
      return sizeof(McastRequest);
    case Call::kOpenXrcd:
      return sizeof(OpenXrcdRequest);
    case Call::kOpenQp:
      return sizeof(OpenQpRequest);
    case Call::kCreateFlow:
      return sizeof(CreateFlowRequest);
    case Call::kDeallocPd:
    case Call::kDeregMr:
    case Call::kImportPd:
    case Call::kDeallocMw:
    case Call::kDestroyChannel:
    case Call::kDestroyCq:
    case Call::kQuerySrq:
    case Call::kDestroySrq:
    case Call::kQueryQp:
    case Call::kDestroyQp:
    case Call::kDestroyAh:
    case Call::kCloseXrcd:
    case Call::kDestroyFlow:
      return sizeof(HandleRequest);
    case Call::kProbe:
    case Call::kProve:
    case Call::kGoodbye:
    case Call::kQueryDevice:
    case Call::kQueryPort:
    case Call::kAllocPd:
    case Call::kImportDevice:
    case Call::kCreateChannel:
      break;
  }
  return 0;
}

bool has_zero_tail(const Request& request) {
  return std::all_of(request.bytes + request_size(request.call),
                     request.bytes + sizeof request.bytes, [](uint8_t byte) { return byte == 0; });
}

}  // namespace vrdma::ipc
