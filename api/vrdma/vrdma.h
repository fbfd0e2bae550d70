/* libvrdma: virtual RDMA devices (vdevices) from C.
 *
 * What vrdmactl(8) does, for programs: vdevices are created, destroyed, limited, listed and
 * watched, by way of the admin API of vrdmad(8) on R/admin.sock, where R is VRDMA_RUN_DIR or
 * /run/vrdma. That is for root. ibv_get_device_type() asks nobody and is for everybody.
 *
 * Errors: functions return -1 or a null pointer and set errno; vrdma_last_error() is the sentence.
 * Beside those named below each may fail with ECONNREFUSED (vrdmad does not run), EACCES (root is
 * needed), ECONNRESET (vrdmad went away), ETIMEDOUT, ENOMEM, and EDEADLK (see fork).
 *
 * Threads: every function may be called from any thread. A struct vrdma_watch is for one thread at
 * a time. No function is async-signal-safe. Signals are blocked in the calling thread during a
 * call, so that no thread of the library ever takes one of the program's.
 *
 * fork: each call has a connection of its own and keeps nothing, so a process may fork between
 * calls and both go on. In a child that was forked while another thread was in a call, or a watch
 * was open, every function fails with EDEADLK until it executes another program.
 *
 * ABI: symbols have versions. Structures that the library fills only grow at their end; of those
 * that the program fills `size` says how much it knows.
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

/* Why the last function that failed in this thread failed: one sentence, never null, the thread's
 * until the next failure. */
const char* vrdma_last_error(void);

/* "0.1.0" */
const char* vrdma_version(void);

/* ---- create, destroy, limit ------------------------------------------------------------------ */

#define VRDMA_NO_LIMIT UINT64_MAX

/* A vdevice's name is unique in its network namespace. Functions that take the name of one that
 * exists look for it in the calling thread's namespace first, then on the whole host, where it must
 * be unique (ENOTUNIQ); "NETNS/NAME" and "id:N" are looked for as they are. */

struct vrdma_limit {
  const char* kind; /* "qp", "mr", "mr_bytes", ...: see vrdmactl(8) */
  uint64_t limit;   /* VRDMA_NO_LIMIT: as much as there can be */
};

/* The operator's own words about a vdevice, such as container, pod, namespace: see vrdmactl(8) for
 * what they may be. */
struct vrdma_label {
  const char* key;
  const char* value;
};

/* What a vdevice is made of. Begin with VRDMA_VDEVICE_SPEC_INIT; what is null or 0 gets its
 * default. */
struct vrdma_vdevice_spec {
  size_t size;                     /* sizeof(struct vrdma_vdevice_spec) */
  const char* name;                /* required: of the new vdevice */
  const char* netdev;              /* required: its interface in that namespace */
  const char* netns;               /* name, absolute path or "pid:N"; null: the calling thread's */
  const char* parent;              /* null: "soft" */
  const char* tenant;              /* null: its own, which no other has */
  const char* fabric;              /* null: the tenant's own */
  const struct vrdma_limit* quota; /* kinds not named get their defaults */
  size_t quota_count;
  const char* const* allow; /* permissions, such as "raw-packet" */
  size_t allow_count;
  const struct vrdma_label* labels;
  size_t label_count;
  uint32_t owner_pid;        /* the process that it belongs to; 0: none */
  uint8_t end_with_owner;    /* not 0: it is destroyed when that has ended */
  uint8_t if_absent;         /* not 0: succeed if it was made before in the very same way */
  uint8_t reserved[2];       /* 0 */
  uint64_t owner_start_time; /* of the owner, see proc_pid_stat(5); 0: whatever it is now */
};
#define VRDMA_VDEVICE_SPEC_INIT                                                                    \
  {                                                                                                \
    sizeof(struct vrdma_vdevice_spec), NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0, NULL, \
        0, 0, 0, 0, {0, 0}, 0                                                                      \
  }

/* Makes the vdevice `name` on `netdev` of the calling thread's network namespace; `parent` may be
 * null. EEXIST: there is one of that name in it. EADDRINUSE: an address of the netdev is another's
 * in the fabric. ENODEV: no such netdev or parent. EINVAL: a bad name. 0 or -1. */
int ibv_create_virtual_ibdev(const char* parent, const char* netdev, const char* name);

/* The same with all there is to say; also ENOENT: no such namespace, ESRCH: no such process
 * ("pid:N", owner_pid), EBUSY: limits beyond a ceiling, EINVAL: an unknown kind or permission, a
 * limit above what is possible, or a larger `size` than this library knows. 0 or -1. */
int vrdma_create_vdevice(const struct vrdma_vdevice_spec* spec);

/* Its programs see IBV_EVENT_DEVICE_FATAL, and their queues flush. ENOENT: there is none. */
int ibv_destroy_virtual_ibdev(const char* name);

/* Changes the limits that are named and leaves the others; all or nothing. ENOENT: no such vdevice,
 * EINVAL: an unknown kind, EBUSY: a limit below what is in use. 0 or -1. */
int ibv_provision_resources(const char* name, const struct vrdma_limit* limits, size_t count);

/* ---- which devices there are ----------------------------------------------------------------- */

enum vrdma_device_type {
  VRDMA_DEVICE_PHYSICAL = 0, /* one that the kernel knows */
  VRDMA_DEVICE_VIRTUAL = 1   /* a vdevice */
};

/* Of a device from ibv_get_device_list(3), by whichever library made the list. An enum
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
  const char* netdev;     /* its name now; what is no printable ASCII as \xNN */
  const char* node_guid;  /* "0211:22ff:fe33:4455" */
  const char* port_state; /* "ACTIVE", "DOWN"; "LOST": it could not be restored (yet) */
  const char* socket;     /* path of its session socket; "" of one that is lost */
  uint64_t netns_cookie;  /* SO_NETNS_COOKIE: identifies the namespace until the next boot */
  uint32_t ifindex;
  uint32_t active_mtu;     /* bytes */
  uint32_t sessions;       /* processes that have it open */
  const char* const* gids; /* by index, canonical IPv6 text */
  size_t gid_count;
  const struct vrdma_quota* quota;
  size_t quota_count;
  const char* const* allowed;
  size_t allowed_count;
  uint64_t id;                      /* of this vdevice alone, also after it has gone */
  const struct vrdma_label* labels; /* by key */
  size_t label_count;
  uint32_t owner_pid; /* 0: it has no owner */
  uint8_t owner_ended;
  uint8_t end_with_owner;
  uint8_t reserved[2];
  uint64_t owner_start_time;
};

/* All vdevices, sorted by name, then by namespace: an array that ends in a null pointer, `*count`
 * of them if `count` is not null. Give it back to vrdma_free_vdevice_list(). Null on failure. */
struct vrdma_vdevice** vrdma_get_vdevice_list(size_t* count);
void vrdma_free_vdevice_list(struct vrdma_vdevice** list);

/* ---- watch ----------------------------------------------------------------------------------- */

enum vrdma_event_type {
  VRDMA_VDEVICE_ADDED = 1,
  VRDMA_VDEVICE_CHANGED = 2,
  VRDMA_VDEVICE_REMOVED = 3 /* the vdevice as it last was */
};

struct vrdma_event {
  enum vrdma_event_type type;
  const char* reason; /* for people: "created", "addresses changed", ... */
  const struct vrdma_vdevice* vdevice;
};

struct vrdma_watch;

/* First one ADDED for each vdevice there is, then every change. Null on failure. */
struct vrdma_watch* vrdma_watch_open(void);

/* Readable (poll(2)) while an event is there, or the watch has failed. The watch owns it. */
int vrdma_watch_fd(const struct vrdma_watch* watch);

/* The next event, for which it waits `timeout_ms` milliseconds; -1: for ever. 1: `*event` is it, to
 * be given back to vrdma_free_event(). 0: there was none in time. -1: the watch has failed. */
int vrdma_watch_next(struct vrdma_watch* watch, int timeout_ms, struct vrdma_event** event);
void vrdma_free_event(struct vrdma_event* event);

void vrdma_watch_close(struct vrdma_watch* watch);

#ifdef __cplusplus
}
#endif

#endif
