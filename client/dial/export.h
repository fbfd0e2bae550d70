// Marks a definition as an exported symbol of the library (libibverbs.map assigns its version).
// Everything else is compiled with -fvisibility=hidden.
#pragma once

#define VRDMA_EXPORT extern "C" __attribute__((visibility("default")))
