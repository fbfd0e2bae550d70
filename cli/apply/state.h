// What vrdmad has, asked by the admin API.
#pragma once

#include <vrdma/v1/admin.pb.h>

#include "api/client.h"
#include "cli/apply/objects.h"
#include "core/base/error.h"

namespace vrdma::cli::apply {

[[nodiscard]] base::Result<State> ask(api::Client& client);

[[nodiscard]] Existing existing(const v1::Vdev& vdev);
[[nodiscard]] Budget budget(const v1::Budget& budget);

}  // namespace vrdma::cli::apply
