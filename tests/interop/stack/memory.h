// What memory.c asks of the library by which its processes send: memory_ucx.c, memory_mpi.c.
#ifndef MEMORY_H
#define MEMORY_H
#include <stddef.h>

enum { kMostSides = 2 };

void fail(const char* what);  // of memory.c: says so, and exits with 1

// Sets how many processes there are, and which this is. One alone sends to itself.
void begin(int* sides, int* side);
// Sends `size` bytes to the other side, and receives as many.
void exchange(const void* out, void* in, size_t size);
// Whether it is so on any side.
int on_any_side(int so);
void end(void);
#endif
