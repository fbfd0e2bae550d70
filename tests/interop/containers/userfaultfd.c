// userfaultfd: succeeds if this process may see its own page faults, and not those of the kernel in
// its pages.
#include <errno.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
  const long any = syscall(SYS_userfaultfd, 0);
  const int why = errno;
  const long own = syscall(SYS_userfaultfd, UFFD_USER_MODE_ONLY);
  printf("any: %s, own: %s\n",
         any >= 0        ? "permitted"
         : why == EPERM  ? "EPERM"
         : why == ENOSYS ? "ENOSYS"
                         : "?",
         own >= 0 ? "permitted" : "forbidden");
  return !(any < 0 && own >= 0);
}
