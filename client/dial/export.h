// Marks a definition as one of the library's exported symbols (libibverbs.map gives its version).
// All else is compiled with -fvisibility=hidden.
#pragma once

#define VRDMA_EXPORT extern "C" __attribute__((visibility("default")))
