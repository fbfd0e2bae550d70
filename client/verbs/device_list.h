// The list that ibv_get_device_list returns: this process's vdevices, then the real devices,
// because many programs take the first device.
//
// Any thread may call these functions. A device keeps its address while a list or a context refers
// to it, also if a new scan finds it again.
#pragma once

#include "client/verbs/virtual.h"

namespace vrdma::client {

// nullptr and errno if there are no virtual devices and no real library that lists devices. `count`
// may be nullptr.
ibv_device** make_device_list(int* count);
void free_device_list(ibv_device** list);

// Takes another reference on a device; the caller holds a list or a reference already.
void hold_device(VirtualDevice* device);
void drop_device(VirtualDevice* device);

}  // namespace vrdma::client
