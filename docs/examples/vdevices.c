/* vdevices NETDEV NAME: a vdevice NAME on NETDEV of this network namespace comes, is limited, is
 * seen by verbs, and goes; a watch tells of each. Run as root, beside a running vrdmad:
 *
 *   cc -o vdevices docs/examples/vdevices.c $(pkg-config --cflags --libs vrdma) -libverbs
 *   LD_LIBRARY_PATH=/usr/local/lib/vrdma ./vdevices eth0 web0
 *
 * Without the library path, verbs shows the devices of the kernel only.
 */
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <vrdma/vrdma.h>

static int complain(const char* what) {
  fprintf(stderr, "vdevices: %s: %s\n", what, vrdma_last_error());
  return 1;
}

/* Prints what the watch has to tell of `name` until it has told of `type`. */
static int await_event(struct vrdma_watch* watch, const char* name, enum vrdma_event_type type) {
  static const char* const words[] = {"", "added", "changed", "removed"};
  struct vrdma_event* event;
  int seen = 0;
  while (!seen) {
    switch (vrdma_watch_next(watch, 5000, &event)) {
      case 1:
        if (strcmp(event->vdevice->name, name) == 0) {
          printf("event: %s %s: %s\n", name, words[event->type], event->reason);
          seen = event->type == type;
        }
        vrdma_free_event(event);
        break;
      case 0:
        fprintf(stderr, "vdevices: no event within 5 s\n");
        return 1;
      default:
        return complain("watch");
    }
  }
  return 0;
}

static int show_vdevice(const char* name) {
  struct vrdma_vdevice** list = vrdma_get_vdevice_list(NULL);
  size_t i;
  if (list == NULL) return complain("list");
  for (struct vrdma_vdevice** v = list; *v != NULL; ++v) {
    if (strcmp((*v)->name, name) != 0) continue;
    printf("vdevice: %s on %s, tenant %s, fabric %s, port %s\n", (*v)->name, (*v)->netdev,
           (*v)->tenant, (*v)->fabric, (*v)->port_state);
    for (i = 0; i < (*v)->gid_count; ++i) printf("gid %zu: %s\n", i, (*v)->gids[i]);
    for (i = 0; i < (*v)->quota_count; ++i)
      if (strcmp((*v)->quota[i].kind, "qp") == 0)
        printf("queue pairs: %" PRIu64 " of %" PRIu64 "\n", (*v)->quota[i].used,
               (*v)->quota[i].limit);
  }
  vrdma_free_vdevice_list(list);
  return 0;
}

static void show_verbs_devices(void) {
  struct ibv_device** list = ibv_get_device_list(NULL);
  if (list == NULL) return;
  for (struct ibv_device** d = list; *d != NULL; ++d)
    printf("verbs: %s is %s\n", ibv_get_device_name(*d),
           ibv_get_device_type(*d) == VRDMA_DEVICE_VIRTUAL ? "virtual" : "physical");
  ibv_free_device_list(list);
}

static int run(struct vrdma_watch* watch, const char* netdev, const char* name) {
  const struct vrdma_limit limits[] = {{"qp", 16}, {"mr", 32}};
  if (ibv_create_virtual_ibdev("soft", netdev, name) != 0) return complain("create");
  if (await_event(watch, name, VRDMA_VDEVICE_ADDED) != 0) return 1;
  if (ibv_provision_resources(name, limits, 2) != 0) return complain("limit");
  if (await_event(watch, name, VRDMA_VDEVICE_CHANGED) != 0 || show_vdevice(name) != 0) return 1;
  show_verbs_devices();
  if (ibv_destroy_virtual_ibdev(name) != 0) return complain("destroy");
  return await_event(watch, name, VRDMA_VDEVICE_REMOVED);
}

int main(int argc, char** argv) {
  struct vrdma_watch* watch;
  int status;
  if (argc != 3) {
    fprintf(stderr, "usage: vdevices NETDEV NAME\n");
    return 2;
  }
  watch = vrdma_watch_open();
  if (watch == NULL) return complain("watch");
  status = run(watch, argv[1], argv[2]);
  vrdma_watch_close(watch);
  return status;
}
