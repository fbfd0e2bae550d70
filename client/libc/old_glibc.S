// Functions that moved from libdl and libpthread into libc.so.6 with glibc 2.34 (or 2.32), and got a
// new version there. Each hidden definition here jumps to the original version, which every glibc
// has. See README.md.

#if defined(__x86_64__)
#define FIRST GLIBC_2.2.5
#define OF_DLINFO GLIBC_2.3.3
.macro  enter old
        endbr64
        jmp     *\old@GOTPCREL(%rip)
.endm
#elif defined(__aarch64__)
#define FIRST GLIBC_2.17
#define OF_DLINFO GLIBC_2.17
.macro  enter old
        hint    34                              // bti c
        adrp    x16, :got:\old
        ldr     x16, [x16, :got_lo12:\old]
        br      x16
.endm
#else
#error "no old versions for this processor"
#endif

.macro  pin name, version
        .hidden \name
        .globl  \name
        .type   \name, %function
        .symver old_\name, \name@\version
        .p2align 4
\name:
        .cfi_startproc
        enter   old_\name
        .cfi_endproc
        .size   \name, . - \name
.endm
#define PIN(name, version) pin name, version

        .text
PIN(dlopen, FIRST)
PIN(dlclose, FIRST)
PIN(dlsym, FIRST)
PIN(dlvsym, FIRST)
PIN(dladdr1, OF_DLINFO)
PIN(dlinfo, OF_DLINFO)
PIN(pthread_attr_setstack, FIRST)
PIN(pthread_sigmask, FIRST)
PIN(pthread_create, FIRST)
PIN(pthread_join, FIRST)
PIN(pthread_detach, FIRST)
PIN(pthread_once, FIRST)
PIN(__pthread_key_create, FIRST)
PIN(pthread_key_create, FIRST)
PIN(pthread_key_delete, FIRST)
PIN(pthread_getspecific, FIRST)
PIN(pthread_setspecific, FIRST)
PIN(pthread_mutex_trylock, FIRST)
PIN(pthread_rwlock_rdlock, FIRST)
PIN(pthread_rwlock_tryrdlock, FIRST)
PIN(pthread_rwlock_wrlock, FIRST)
PIN(pthread_rwlock_unlock, FIRST)

        .section .note.GNU-stack, "", %progbits
