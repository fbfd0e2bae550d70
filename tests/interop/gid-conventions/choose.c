/* choose.c DEVICE: prints the GID index that each of five programs would use on port 1 of DEVICE.
 *
 * Written after the rules of these programs, without their code:
 *   NCCL      from index 1 on; takes a GID of family IPv4 over one of another family, and one of
 * RoCE v2, by the file gid_attrs/types/N, over one of RoCE v1; a file that is missing is an error
 *   brpc      from the last index down; the first whose interface id is not zero
 *   UCX       RoCE v2 over IPv4 first, then over IPv6; an index must serve for an address handle
 *   Mooncake  from index 0 until the first that cannot be queried; RoCE v2 over IPv4 with a name in
 * the file gid_attrs/ndevs/N perftest  IPv4 over another family; of one family, the better type
 * Also "table": the indices of ibv_query_gid_table(), and "sysfs": those of files that are not
 * zero. */
#include <infiniband/verbs.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIE(...)                  \
  do {                            \
    fprintf(stderr, __VA_ARGS__); \
    fputc('\n', stderr);          \
    exit(1);                      \
  } while (0)

static struct ibv_context* context;
static const char* device;
static int length; /* of the table */

static bool is_zero(const union ibv_gid* gid) {
  static const union ibv_gid zero;
  return memcmp(gid, &zero, sizeof zero) == 0;
}

static bool is_ipv4(const union ibv_gid* gid) {
  static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
  return memcmp(gid->raw, mapped, sizeof mapped) == 0;
}

static union ibv_gid gid_at(int index) {
  union ibv_gid gid;
  if (ibv_query_gid(context, 1, index, &gid) != 0) DIE("ibv_query_gid(%d) fails", index);
  return gid;
}

/* The first line of ports/1/WHAT/INDEX. */
static bool attribute(const char* what, int index, char* line, int size) {
  char path[PATH_MAX];
  snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/%s/%d", device, what, index);
  FILE* const file = fopen(path, "r");
  if (file == NULL) return false;
  const bool read = fgets(line, size, file) != NULL;
  fclose(file);
  if (read) line[strcspn(line, "\n")] = '\0';
  return read;
}

static int roce_version(int index) {
  char type[32];
  if (!attribute("gid_attrs/types", index, type, sizeof type))
    DIE("NCCL: no type of GID %d", index);
  return strcmp(type, "RoCE v2") == 0 ? 2 : 1;
}

static int nccl(void) {
  int best = 0;
  for (int i = 1; i < length; ++i) {
    const union ibv_gid chosen = gid_at(best), other = gid_at(i);
    if (!is_ipv4(&other)) continue;
    if (!is_ipv4(&chosen) || (roce_version(best) != 2 && roce_version(i) == 2)) best = i;
  }
  return best;
}

static int brpc(void) {
  for (int i = length - 1; i >= 0; --i)
    if (gid_at(i).global.interface_id != 0) return i;
  DIE("brpc: no GID");
}

static int ucx(struct ibv_pd* pd) {
  for (int want_ipv4 = 1; want_ipv4 >= 0; --want_ipv4)
    for (int i = 0; i < length; ++i) {
      char type[32];
      const union ibv_gid gid = gid_at(i);
      if (!attribute("gid_attrs/types", i, type, sizeof type) || strcmp(type, "RoCE v2") != 0)
        continue;
      if (is_ipv4(&gid) != want_ipv4) continue;
      struct ibv_ah_attr path = {.port_num = 1, .is_global = 1};
      path.grh.dgid = gid;
      path.grh.sgid_index = (uint8_t)i;
      path.grh.hop_limit = 255;
      struct ibv_ah* const ah = ibv_create_ah(pd, &path);
      if (ah == NULL) continue;
      ibv_destroy_ah(ah);
      return i;
    }
  DIE("UCX: no GID of RoCE v2");
}

static int mooncake(void) {
  for (int i = 0; i < length; ++i) {
    struct ibv_gid_entry entry;
    char netdev[64];
    if (ibv_query_gid_ex(context, 1, (uint32_t)i, &entry, 0) != 0) break;
    if (entry.gid_type == IBV_GID_TYPE_ROCE_V2 && is_ipv4(&entry.gid) &&
        attribute("gid_attrs/ndevs", i, netdev, sizeof netdev) && netdev[0] != '\0')
      return i;
  }
  DIE("Mooncake: no GID with a netdev");
}

static int perftest(void) {
  int best = 0;
  for (int i = 1; i < length; ++i) {
    const union ibv_gid chosen = gid_at(best), other = gid_at(i);
    if (is_ipv4(&other) && !is_ipv4(&chosen)) best = i;
  }
  return best;
}

/* An empty entry is one for all who ask: ibv_query_gid() says zero, no path may begin there. */
static void check_empty(struct ibv_pd* pd) {
  for (int i = 0; i < length; ++i) {
    const union ibv_gid gid = gid_at(i);
    struct ibv_gid_entry entry;
    const int queried = ibv_query_gid_ex(context, 1, (uint32_t)i, &entry, 0);
    struct ibv_ah_attr path = {.port_num = 1, .is_global = 1, .grh = {.sgid_index = (uint8_t)i}};
    path.grh.dgid = gid_at(1);
    struct ibv_ah* const ah = ibv_create_ah(pd, &path);
    if (is_zero(&gid) != (queried != 0)) DIE("GID %d: ibv_query_gid_ex says %d", i, queried);
    if (is_zero(&gid) != (ah == NULL))
      DIE("GID %d: an address handle was%s made", i, ah ? "" : " not");
    if (ah != NULL) ibv_destroy_ah(ah);
  }
}

int main(int argc, char** argv) {
  if (argc != 2) DIE("usage: choose DEVICE");
  device = argv[1];
  int count = 0;
  struct ibv_device** const list = ibv_get_device_list(&count);
  for (int i = 0; i < count; ++i)
    if (strcmp(ibv_get_device_name(list[i]), device) == 0) context = ibv_open_device(list[i]);
  struct ibv_port_attr port;
  if (context == NULL || ibv_query_port(context, 1, &port) != 0)
    DIE("there is no device %s", device);
  length = port.gid_tbl_len;
  struct ibv_pd* const pd = ibv_alloc_pd(context);
  if (pd == NULL) DIE("no protection domain");
  check_empty(pd);
  printf("nccl %d brpc %d ucx %d mooncake %d perftest %d\n", nccl(), brpc(), ucx(pd), mooncake(),
         perftest());
  struct ibv_gid_entry entries[256];
  const ssize_t entry_count = ibv_query_gid_table(context, entries, 256, 0);
  printf("table");
  for (ssize_t i = 0; i < entry_count; ++i) printf(" %u", entries[i].gid_index);
  printf("\nsysfs");
  for (int i = 0; i < length; ++i) {
    char text[64];
    if (attribute("gids", i, text, sizeof text) && strspn(text, "0:") != strlen(text))
      printf(" %d", i);
  }
  putchar('\n');
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
  ibv_free_device_list(list);
  return 0;
}
