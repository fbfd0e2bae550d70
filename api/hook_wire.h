// What container runtimes' hooks say to vrdmad: R/hook.sock, SOCK_SEQPACKET, mode 0666.
//
// One request and one answer of fixed size each, without pointers. Text is shorter than its array,
// and padded with zeros. A hook of another build is refused by the sizes and the version.
//
//   hook                              vrdmad
//   kSetUp + netns, pidfd    ->       makes the container's vdevices, or joins it to those that
//                            <-       its pod has
//   (mounts what it got)
//   kDone                    ->       from now on the container owns them
//                            <-
//   kFailed                  ->       instead of kDone, or of all: vrdmad logs why, and ends the
//                            <-       connection
//   kEnded                   ->       the container has ended; vrdmad believes its pidfd alone
//                            <-
//
// A hook whose connection ends before the answer to kSetUp, because vrdmad is restarted, may ask
// again: the container gets what it was given before.
// After a refusal vrdmad ends the connection; EAGAIN: the hook may try again. A user
// with too many connections is refused before the request, so the answer may be there although
// sending fails (EPIPE). A connection has 30
// seconds. If it ends between kSetUp and kDone, vrdmad undoes the kSetUp. The sysfs tree and the
// directory of sockets are there when vrdmad answers, also if the netdev comes later, and keep
// their inodes until the vdevice is deleted. The owner of a vdevice is a set of processes, the
// inits of its containers: when the last of them has ended, vrdmad deletes the vdevice, whether or
// not there was a kEnded.
//
// Anybody on the host may connect. vrdmad asks the kernel who the caller is (SO_PEERCRED), and who
// owns the network namespace (NS_GET_OWNER_UID, ioctl_ns(2)); a caller that is not root must be
// that user. A claim counts only from root's hook, and only with the namespace of a pod that the
// claim is for. What the annotations of a container ask for is granted only as far as the class of
// its vdevice allows (/etc/vrdma/classes.conf): images carry annotations too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vrdma::hook {

constexpr uint32_t kVersion = 4;
constexpr size_t kMostVdevices = 8;  // of a container

struct Request {
  enum class Op : uint32_t {
    // All fields; beside: a network namespace, and a pidfd of the container's init in it.
    kSetUp = 1,
    kDone,    // no fields: of the kSetUp on this connection
    kEnded,   // container
    kFailed,  // container, reason
  };
  uint32_t version = kVersion;
  Op op{};
  // Not 0: its programs may have CAP_NET_ADMIN, and so exchange its netdevs and addresses.
  uint32_t network_admin = 0;
  uint32_t zero = 0;
  char container[128]{};  // the runtime's id of the container
  char pod[128]{};        // that of its pod or sandbox; empty: none
  // Of Kubernetes; empty: it is in no pod. Anybody can write these annotations, so vrdmad believes
  // them only if the hook is root's.
  char pod_namespace[64]{};
  char pod_name[256]{};
  char pod_uid[64]{};
  char container_name[64]{};  // in the pod
  char device_class[64]{};
  // Instead of a class: a claim and a share of it (admin.proto), in which vrdmad finds the class.
  char claim[64]{};
  char share[64]{};
  // Annotations; empty: there is none.
  char netdev[16]{};
  char name[64]{};
  char quota[256]{};

  char reason[256]{};  // a sentence without a newline
};
static_assert(sizeof(Request) ==
              16 + 128 + 128 + 64 + 256 + 64 + 64 + 64 + 64 + 64 + 16 + 64 + 256 + 256);

struct Answer {
  struct Vdevice {
    char name[64]{};   // in the container
    char tree[256]{};  // path of its sysfs tree: vrdmad/control/sysfs_tree.h
  };
  int32_t error = 0;  // errno
  uint32_t vdevices = 0;
  uint32_t memory_reached = 0;  // no memory of the container's programs is put in place
  uint32_t zero = 0;
  char run_dir[256]{};  // R
  char sockets[256]{};  // path of the directory R/netns/<cookie>
  Vdevice vdevice[kMostVdevices]{};
  char reason[512]{};  // a sentence without a newline, if there is an error
};
static_assert(sizeof(Answer) == 16 + 256 + 256 + kMostVdevices * 320 + 512);

}  // namespace vrdma::hook
