// False positives of ThreadSanitizer: gRPC and abseil are not built with it, so it misses their
// locks and reports what these guard. Compiled only into programs of the tsan preset; our own code
// is still checked. Weak, because a unity build may include it twice.
extern "C" __attribute__((weak)) const char* __tsan_default_suppressions() {
  return "called_from_lib:libgrpc_unsecure.so\n"
         "called_from_lib:libgrpc++_unsecure.so\n"
         "called_from_lib:libgpr.so\n"
         "called_from_lib:libupb.so\n"
         "called_from_lib:libabsl_base.so\n"
         "called_from_lib:libabsl_graphcycles_internal.so\n"
         "called_from_lib:libabsl_synchronization.so\n"
         "race:libgrpc\n"
         "race:libabsl\n"
         "race:libupb\n"
         "race:grpc::\n"
         // A descriptor number that was reused after gRPC closed the descriptor unseen, or that was
         // created by a call unknown to the sanitizer: memfd_create, pidfd_open, ioctl. Or equal
         // numbers in different tables: the sanitizer assumes one table per process, but threads
         // that reach memory have their own (core/rdma/reach_threads.h). One side of such a race is
         // the call that creates or closes descriptors.
         "race:closedir\n"
         "race:close$\n"
         "race:accept4$\n"
         "race:dup$\n"
         "race:epoll_create1$\n"
         "race:eventfd$\n"
         "race:open$\n"
         "race:open64$\n"
         "race:openat$\n"
         "race:pipe2$\n"
         "race:socket$\n"
         "race:socketpair$\n";
}
