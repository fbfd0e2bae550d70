// libdl.so.2 and libpthread.so.0 of glibc since 2.34: no code, since libc.so.6 has it. They define no
// version either, so that the loader accepts each that a library wants of them. See README.md.

        .section .note.GNU-stack, "", %progbits
