/* libvrdma: virtual RDMA devices (vdevices) from C.
 *
 * vrdmactl(8) for programs: create, destroy, limit, list and watch vdevices through the admin API
 * of vrdmad(8) on R/admin.sock, where R is VRDMA_RUN_DIR or /run/vrdma. This requires root.
 * ibv_get_device_type() does not use the API and works for every user.
 *
 * Errors: functions return -1 or a null pointer and set errno; vrdma_last_error() is the sentence.
 * Besides the errors named below, each may fail with ECONNREFUSED (vrdmad does not run), EACCES
 * (not root), ECONNRESET (vrdmad went away), ETIMEDOUT, ENOMEM, and EDEADLK (see fork).
 *
 * Threads: every function may be called from any thread. A struct vrdma_watch is for one thread at
 * a time. No function is async-signal-safe. Signals are blocked in the calling thread during a
 * call, so that no thread of the library ever receives one of the program's.
 *
 * fork: each call uses a separate connection and keeps no state, so a process may fork between
 * calls, and both processes may continue. In a child that was forked while another thread was in a
 * call, or a watch was open, every function fails with EDEADLK until it executes another program.
 *
 * ABI: symbols have versions. Structures that the library fills only grow at their end. Structures
 * that the program fills have a `size` member, the size that the program was compiled with.
 *
 * Manual pages: vrdma(3) and those that it names.
 */
#ifndef VRDMA_VRDMA_H
#define VRDMA_VRDMA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ibv_device; /* of <infiniband/verbs.h> */

/* The reason of the last failure in this thread: one sentence, never null, valid until the thread's
 * next failure. */
const char* vrdma_last_error(void);

/* "0.1.0" */
const char* vrdma_version(void);

/* ---- create, destroy, limit ------------------------------------------------------------------ */

#define VRDMA_NO_LIMIT UINT64_MAX

/* A vdevice's name is unique in its network namespace. Functions that take the name of an existing
 * vdevice look for it in the calling thread's namespace first, then on the whole host, where it
 * must be unique (ENOTUNIQ). "NETNS/NAME" and "id:N" name a vdevice exactly. */

struct vrdma_limit {
  const char* kind; /* "qp", "mr", "mr_bytes", ...: see vrdmactl(8) */
  uint64_t limit;   /* VRDMA_NO_LIMIT: the highest possible */
};

/* A label of the operator's choice, such as container, pod, namespace: see vrdmactl(8) for the
 * permitted keys and values. */
struct vrdma_label {
  const char* key;
  const char* value;
};

/* Describes a vdevice to create. Initialize with VRDMA_VDEVICE_SPEC_INIT; members that are null or
 * 0 have their default. */
struct vrdma_vdevice_spec {
  size_t size;                     /* sizeof(struct vrdma_vdevice_spec) */
  const char* name;                /* required */
  const char* netdev;              /* required: its interface in that namespace */
  const char* netns;               /* name, absolute path or "pid:N"; null: the calling thread's */
  const char* parent;              /* null: "soft" */
  const char* tenant;              /* null: its own, which no other vdevice has */
  const char* fabric;              /* null: the tenant's own */
  const struct vrdma_limit* quota; /* kinds that are not listed get their defaults */
  size_t quota_count;
  const char* const* allow; /* permissions, such as "raw-packet" */
  size_t allow_count;
  const struct vrdma_label* labels;
  size_t label_count;
  uint32_t owner_pid;        /* the process that it belongs to; 0: none */
  uint8_t end_with_owner;    /* not 0: destroy it when the owner ends */
  uint8_t if_absent;         /* not 0: succeed if an identical vdevice already exists */
  uint8_t reserved[2];       /* 0 */
  uint64_t owner_start_time; /* of the owner, see proc_pid_stat(5); 0: not checked */
};
#define VRDMA_VDEVICE_SPEC_INIT                                                                    \
  {                                                                                                \
    sizeof(struct vrdma_vdevice_spec), NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0, NULL, \
        0, 0, 0, 0, {0, 0}, 0                                                                      \
  }

/* Creates the vdevice `name` on `netdev` of the calling thread's network namespace; `parent` may be
 * null. EEXIST: the name is taken. EADDRINUSE: another vdevice of the fabric holds an address of
 * the netdev. ENODEV: no such netdev or parent. EINVAL: a bad name. Returns 0 or -1. */
int ibv_create_virtual_ibdev(const char* parent, const char* netdev, const char* name);

/* The same with all options. Also ENOENT: no such namespace, ESRCH: no such process ("pid:N",
 * owner_pid), EBUSY: limits beyond a ceiling, EINVAL: an unknown kind or permission, a limit above
 * the maximum, or a larger `size` than this library supports. Returns 0 or -1. */
int vrdma_create_vdevice(const struct vrdma_vdevice_spec* spec);

/* Its programs get IBV_EVENT_DEVICE_FATAL, and their queues are flushed. ENOENT: no such vdevice.
 */
int ibv_destroy_virtual_ibdev(const char* name);

/* Changes the named limits only, all or nothing. ENOENT: no such vdevice, EINVAL: an unknown kind,
 * EBUSY: a limit below the current use. Returns 0 or -1. */
int ibv_provision_resources(const char* name, const struct vrdma_limit* limits, size_t count);

/* ---- list ------------------------------------------------------------------------------------ */

enum vrdma_device_type {
  VRDMA_DEVICE_PHYSICAL = 0, /* a kernel device */
  VRDMA_DEVICE_VIRTUAL = 1   /* a vdevice */
};

/* The type of a device from ibv_get_device_list(3), whichever library returned the list: an enum
 * vrdma_device_type, or -1 (EINVAL: null). */
int ibv_get_device_type(const struct ibv_device* device);

struct vrdma_quota {
  const char* kind;
  uint64_t used;
  uint64_t limit; /* VRDMA_NO_LIMIT: none */
};

struct vrdma_vdevice {
  const char* name;
  const char* parent;
  const char* tenant;
  const char* fabric;
  const char* netns;      /* as given at creation */
  const char* netdev;     /* its current name; bytes that are not printable ASCII as \xNN */
  const char* node_guid;  /* "0211:22ff:fe33:4455" */
  const char* port_state; /* "ACTIVE", "DOWN", "PENDING", "LOST": vrdma_get_vdevice_list(3) */
  const char* socket;     /* path of its session socket; "" if it is lost */
  uint64_t netns_cookie;  /* SO_NETNS_COOKIE: identifies the namespace until the next boot */
  uint32_t ifindex;
  uint32_t active_mtu;     /* bytes */
  uint32_t sessions;       /* processes that have it open */
  const char* const* gids; /* by index, canonical IPv6 text; "": none there */
  size_t gid_count;
  const struct vrdma_quota* quota;
  size_t quota_count;
  const char* const* allowed;
  size_t allowed_count;
  uint64_t id;                      /* unique; never reused */
  const struct vrdma_label* labels; /* by key */
  size_t label_count;
  uint32_t owner_pid; /* 0: no owner */
  uint8_t owner_ended;
  uint8_t end_with_owner;
  uint8_t reserved[2];
  uint64_t owner_start_time;
};

/* All vdevices, sorted by name, then by namespace: an array that ends with a null pointer. Sets
 * `*count` if `count` is not null. Free it with vrdma_free_vdevice_list(). Null on failure. */
struct vrdma_vdevice** vrdma_get_vdevice_list(size_t* count);
void vrdma_free_vdevice_list(struct vrdma_vdevice** list);

/* ---- watch ----------------------------------------------------------------------------------- */

enum vrdma_event_type {
  VRDMA_VDEVICE_ADDED = 1,
  VRDMA_VDEVICE_CHANGED = 2,
  VRDMA_VDEVICE_REMOVED = 3 /* with the vdevice's last state */
};

struct vrdma_event {
  enum vrdma_event_type type;
  const char* reason; /* for people: "created", "addresses changed", ... */
  const struct vrdma_vdevice* vdevice;
};

struct vrdma_watch;

/* Reports ADDED for each existing vdevice, then every change. Null on failure. */
struct vrdma_watch* vrdma_watch_open(void);

/* Readable (poll(2)) while events are queued, or the watch has failed. The watch owns it. */
int vrdma_watch_fd(const struct vrdma_watch* watch);

/* Waits for the next event for `timeout_ms` milliseconds; -1: forever. 1: `*event` is the event;
 * free it with vrdma_free_event(). 0: there was none in time. -1: the watch has failed. */
int vrdma_watch_next(struct vrdma_watch* watch, int timeout_ms, struct vrdma_event** event);
void vrdma_free_event(struct vrdma_event* event);

void vrdma_watch_close(struct vrdma_watch* watch);

#ifdef __cplusplus
}
#endif

#endif
