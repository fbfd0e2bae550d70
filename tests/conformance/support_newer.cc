// Verbs that the linked libibverbs does not have.
#include <dlfcn.h>

#include "client/verbs/newer_abi.h"
#include "tests/conformance/support.h"

#define NEWER(name, version) \
  reinterpret_cast<decltype(&::name)>(::dlvsym(RTLD_DEFAULT, #name, version))

void newer_verbs(ibv_context* context, ibv_pd* pd) {
  alignas(8) static char memory[64];
  verb("ibv_query_port_speed", [&] {
    uint64_t speed = 0;
    return NEWER(ibv_query_port_speed, "IBVERBS_1.16")(context, 1, &speed);
  });
  verb("ibv_reg_mr_ex", [&] {
    ibv_mr_init_attr attr{};
    attr.length = 64;
    attr.comp_mask = IBV_REG_MR_MASK_ADDR;
    attr.addr = memory;
    return made(NEWER(ibv_reg_mr_ex, "IBVERBS_1.15")(pd, &attr), ibv_dereg_mr);
  });
  ibv_buf* buffer = nullptr;
  void* address = nullptr;
  verb("ibv_alloc_buf", [&] {
    address = NEWER(ibv_alloc_buf, "IBVERBS_1.17")(pd, 64, &buffer);
    return address != nullptr ? 0 : errno;
  });
  verb("ibv_reg_buf_mr", [&] {
    return made(NEWER(ibv_reg_buf_mr, "IBVERBS_1.17")(pd, buffer, address, 64, 0), ibv_dereg_mr);
  });
  NEWER(ibv_free_buf, "IBVERBS_1.17")(buffer);
  verb("ibv_alloc_dmah", [&] {
    return made(NEWER(ibv_alloc_dmah, "IBVERBS_1.15")(context, nullptr),
                NEWER(ibv_dealloc_dmah, "IBVERBS_1.15"));
  });
  verb("ibv_dm_export_dmabuf_fd", [&] {
    ibv_alloc_dm_attr attr{};
    attr.length = 64;
    ibv_dm* dm = ibv_alloc_dm(context, &attr);
    const int error = result(NEWER(ibv_dm_export_dmabuf_fd, "IBVERBS_1.16")(dm));
    ibv_free_dm(dm);
    return error;
  });
  verb("ibv_create_comp_cntr", [&] {
    return made(NEWER(ibv_create_comp_cntr, "IBVERBS_1.18")(context, nullptr),
                NEWER(ibv_destroy_comp_cntr, "IBVERBS_1.18"));
  });
}
