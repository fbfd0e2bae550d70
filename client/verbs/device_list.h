// The list that ibv_get_device_list returns: this process's vdevices, then the real devices, so
// that a program which takes the first device takes the one it was given.
//
// Any thread may call any of these. A device stays where it is while a list or a context refers to
// it; found again meanwhile, it has the same address.
#pragma once

#include "client/verbs/virtual.h"

namespace vrdma::client {

// nullptr and errno if there are neither virtual devices nor a real library that lists its own.
// `count` may be nullptr.
ibv_device** make_device_list(int* count);
void free_device_list(ibv_device** list);

// A further reference on a device that the caller holds by a list or another reference.
void hold_device(VirtualDevice* device);
void drop_device(VirtualDevice* device);

}  // namespace vrdma::client
