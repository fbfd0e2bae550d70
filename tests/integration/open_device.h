// For test programs that are told the name of their vdevice.
#pragma once

#include <infiniband/verbs.h>

#include <cstring>

// nullptr: there is none of that name, or it cannot be opened.
inline ibv_context* open_device(const char* name) {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  ibv_context* context = nullptr;
  for (int i = 0; i < count && context == nullptr; ++i)
    if (std::strcmp(ibv_get_device_name(list[i]), name) == 0) context = ibv_open_device(list[i]);
  if (list != nullptr) ibv_free_device_list(list);
  return context;
}
