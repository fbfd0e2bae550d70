// One entry point for each function of the real library: `jmp *slot`.
//
// A slot first points to a stub, which resolves the function (real.cc: vrdma_resolve) and enters it
// with all argument registers unchanged. So this code need not know the number or types of
// arguments, and variadic functions work. Later calls cost one indirect jump. Two threads that
// resolve a slot at once store the same address.
//
// The slots are in .data, not in .data.rel.ro, because they are written after the loader has
// protected the latter.

#if defined(__x86_64__)

// al counts the vector registers of a variadic call, r10 is the static chain: both are preserved.
        .text
        .type   resolve_and_enter, @function
resolve_and_enter:
        .cfi_startproc
        .cfi_adjust_cfa_offset 8                // the slot's number, pushed by the stub
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        pushq   %rcx
        .cfi_adjust_cfa_offset 8
        pushq   %r8
        .cfi_adjust_cfa_offset 8
        pushq   %r9
        .cfi_adjust_cfa_offset 8
        pushq   %rax
        .cfi_adjust_cfa_offset 8
        pushq   %r10
        .cfi_adjust_cfa_offset 8
        subq    $128, %rsp                      // 8 vector registers; aligned to 16
        .cfi_adjust_cfa_offset 128
        movups  %xmm0, (%rsp)
        movups  %xmm1, 16(%rsp)
        movups  %xmm2, 32(%rsp)
        movups  %xmm3, 48(%rsp)
        movups  %xmm4, 64(%rsp)
        movups  %xmm5, 80(%rsp)
        movups  %xmm6, 96(%rsp)
        movups  %xmm7, 112(%rsp)
        movq    192(%rsp), %rdi
        call    vrdma_resolve
        movq    %rax, %r11
        movups  (%rsp), %xmm0
        movups  16(%rsp), %xmm1
        movups  32(%rsp), %xmm2
        movups  48(%rsp), %xmm3
        movups  64(%rsp), %xmm4
        movups  80(%rsp), %xmm5
        movups  96(%rsp), %xmm6
        movups  112(%rsp), %xmm7
        addq    $128, %rsp
        .cfi_adjust_cfa_offset -128
        popq    %r10
        .cfi_adjust_cfa_offset -8
        popq    %rax
        .cfi_adjust_cfa_offset -8
        popq    %r9
        .cfi_adjust_cfa_offset -8
        popq    %r8
        .cfi_adjust_cfa_offset -8
        popq    %rcx
        .cfi_adjust_cfa_offset -8
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        jmp     *%r11
        .cfi_endproc
        .size   resolve_and_enter, . - resolve_and_enter

.macro  entry label
        .type   \label, @function
        .type   at_\label, @function
        .p2align 4
        .cfi_startproc
at_\label:
        endbr64
\label:
        endbr64
        jmp     *vrdma_slots + 8 * slot(%rip)
        .cfi_endproc
        .size   \label, . - \label
        .size   at_\label, . - at_\label
.endm

.macro  stub
        endbr64
        pushq   $slot
        jmp     resolve_and_enter
.endm

.macro  forward name
        .type   forward_\name, @function
        .p2align 4
forward_\name:
        .cfi_startproc
        endbr64
        jmp     \name@PLT
        .cfi_endproc
        .size   forward_\name, . - forward_\name
.endm

.macro  address label
        .quad   \label
.endm

#elif defined(__aarch64__)

        .text
        .type   resolve_and_enter, @function
resolve_and_enter:                              // x17: the slot's number
        .cfi_startproc
        stp     x29, x30, [sp, -224]!
        .cfi_def_cfa_offset 224
        .cfi_offset x29, -224
        .cfi_offset x30, -216
        mov     x29, sp
        stp     x0, x1, [sp, 16]
        stp     x2, x3, [sp, 32]
        stp     x4, x5, [sp, 48]
        stp     x6, x7, [sp, 64]
        str     x8, [sp, 80]
        stp     q0, q1, [sp, 96]
        stp     q2, q3, [sp, 128]
        stp     q4, q5, [sp, 160]
        stp     q6, q7, [sp, 192]
        mov     x0, x17
        bl      vrdma_resolve
        mov     x16, x0
        ldp     x0, x1, [sp, 16]
        ldp     x2, x3, [sp, 32]
        ldp     x4, x5, [sp, 48]
        ldp     x6, x7, [sp, 64]
        ldr     x8, [sp, 80]
        ldp     q0, q1, [sp, 96]
        ldp     q2, q3, [sp, 128]
        ldp     q4, q5, [sp, 160]
        ldp     q6, q7, [sp, 192]
        ldp     x29, x30, [sp], 224
        .cfi_restore x29
        .cfi_restore x30
        .cfi_def_cfa_offset 0
        br      x16
        .cfi_endproc
        .size   resolve_and_enter, . - resolve_and_enter

.macro  entry label
        .type   \label, %function
        .type   at_\label, %function
        .p2align 4
        .cfi_startproc
at_\label:
        hint    34                              // bti c
\label:
        hint    34                              // bti c
        adrp    x16, vrdma_slots + 8 * slot
        ldr     x16, [x16, :lo12:vrdma_slots + 8 * slot]
        br      x16
        .cfi_endproc
        .size   \label, . - \label
        .size   at_\label, . - at_\label
.endm

.macro  stub
        hint    36                              // bti j
        mov     w17, slot
        b       resolve_and_enter
.endm

.macro  forward name
        .type   forward_\name, %function
        .p2align 4
forward_\name:
        .cfi_startproc
        hint    34
        b       \name
        .cfi_endproc
        .size   forward_\name, . - forward_\name
.endm

.macro  address label
        .xword  \label
.endm

#else
#error "no trampolines for this processor"
#endif

// Pass 1: the entry points.
        .set    slot, 0
.macro  next
        .set    slot, slot + 1
.endm
.macro  called name
        .globl  real_\name
        .hidden real_\name
        entry   real_\name
        next
.endm
.macro  passed name
        .globl  \name
        entry   \name
        next
.endm
.macro  compat name, version
        .globl  compat_\name
        entry   compat_\name
        .symver compat_\name, \name@\version, remove
        next
.endm
#define CALLED(name, version, answer) called name;
#define PASSED(name, version, answer) passed name;
#define COMPAT(name, version, answer) compat name, version;
#include "client/verbs/real_symbols.def"
#undef CALLED
#undef PASSED
#undef COMPAT

// Pass 2: the resolving stubs.
        .set    slot, 0
#define CALLED(name, version, answer) stub_##name: stub; next;
#define PASSED(name, version, answer) stub_##name: stub; next;
#define COMPAT(name, version, answer) stub_compat_##name: stub; next;
#include "client/verbs/real_symbols.def"
#undef CALLED
#undef PASSED
#undef COMPAT

// Pass 3: the slots.
        .data
        .p2align 3
        .globl  vrdma_slots
        .hidden vrdma_slots
        .type   vrdma_slots, %object
vrdma_slots:
#define CALLED(name, version, answer) address stub_##name;
#define PASSED(name, version, answer) address stub_##name;
#define COMPAT(name, version, answer) address stub_compat_##name;
#include "client/verbs/real_symbols.def"
        .size   vrdma_slots, . - vrdma_slots

// The private functions under the other version nodes: hidden aliases (name@version) of the same
// code. They are at_<name>, one instruction before <name>, because of two symbols at the same
// address the linker drops the unversioned one, and with it the default version.
#define NODE(number)
#define DEFAULT_NODE(number)
#define PRIVATE(name, answer)
        .text
.macro  alias name, target, node
        .globl  in_\node\()_\name
        .set    in_\node\()_\name, \target
        .symver in_\node\()_\name, \name@IBVERBS_PRIVATE_\node, remove
.endm
#define OWN_PRIVATE(name) forward name;
#include "client/verbs/private_symbols.def"
#undef OWN_PRIVATE
#undef PRIVATE

        .data
        .globl  vrdma_allow_disassociate_destroy
        .hidden vrdma_allow_disassociate_destroy
        .type   vrdma_allow_disassociate_destroy, %object
        .size   vrdma_allow_disassociate_destroy, 1
vrdma_allow_disassociate_destroy:
        .byte   0

#define PRIVATE(name, answer) alias name, at_##name, \node;
#define OWN_PRIVATE(name) alias name, forward_##name, \node;
.macro  aliases node
#include "client/verbs/private_symbols.def"
        alias verbs_register_driver_\node, at_verbs_register_driver_\node, \node
        alias verbs_allow_disassociate_destroy, vrdma_allow_disassociate_destroy, \node
.endm
#undef NODE
#define NODE(number) aliases number;
#include "client/verbs/private_nodes.def"

        .section .note.GNU-stack, "", %progbits
