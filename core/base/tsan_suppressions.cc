// What ThreadSanitizer must not believe: gRPC and abseil are not built with it, so it does not see
// their locks and takes what they guard for races. Compiled into programs of the tsan preset only;
// our own code stays watched. Weak, because a compilation of several files may bring it twice.
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
         // A descriptor that gRPC closed out of sight, and whose number was used again; or that was
         // made by what the sanitizer does not know to make any: memfd_create, pidfd_open, ioctl.
         // Or that is another one: the sanitizer believes that a process has one table, but threads
         // that reach memory have their own (core/rdma/reach_threads.h).
         // One of the two in such a race is what makes or closes descriptors.
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
