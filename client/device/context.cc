// Finding, opening and querying vdevices.
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iterator>
#include <memory>
#include <set>

#include "client/device/complaint.h"
#include "client/device/device_names.h"
#include "client/device/memory/raw_memory.h"
#include "client/device/memory/table.h"
#include "client/device/objects.h"
#include "client/device/open_contexts.h"
#include "client/verbs/device_list.h"
#include "client/verbs/shortcuts.h"
#include "client/verbs/virtual.h"
#include "core/base/asymmetric_fence.h"

namespace vrdma::client {

namespace {

constexpr uint16_t kDefaultPkey = 0xffff;

int prove_identity(Context* context, ipc::Reply* reply, std::vector<base::Fd>* fds) {
  std::atomic<uint64_t> challenge = 0;  // read by the daemon
  ipc::Request hello;
  hello.call = ipc::Call::kHello;
  hello.hello.challenge_addr = reinterpret_cast<uint64_t>(&challenge);
  hello.hello.cheap_fence = base::AsymmetricFence::register_process() ? 1 : 0;
  std::vector<int> present;
  if (const int arena = MemoryTable::instance().arena(); arena >= 0) present.push_back(arena);
  if (const int error = context->session.call(hello, reply, present); error != 0) return error;
  challenge = reply->challenge.challenge;
  ipc::Request proof;
  proof.call = ipc::Call::kProve;
  return context->session.call(proof, reply, {}, fds);
}

// Of the vdevice with that name, or of the only one.
std::string socket_of(const std::string& name) {
  std::vector<FoundDevice> all;
  (void)scan_devices(&all);
  for (const FoundDevice& one : all)
    if (one.name == name) return one.session;
  return all.size() == 1 ? all.front().session : std::string();
}

int say_hello(Context* context, const VirtualDevice& device) {
  if (const int error = context->session.open(device.session, true); error != 0) return error;

  MemoryTable& memory = MemoryTable::instance();
  ipc::Reply reply;
  std::vector<base::Fd> fds;
  int error = ENOTCONN;  // another daemon took over between the two calls
  for (int left = 4; left > 0 && error == ENOTCONN; --left)
    error = prove_identity(context, &reply, &fds);
  if (error != 0) return error;
  const size_t own_events = 5 + (reply.hello.has_userfaultfd != 0 ? 1 : 0);
  if (fds.size() < own_events + 1) return EMFILE;
  auto arena = base::Mapping::shared(fds[0], ipc::kQueueArenaSize, 0, PROT_READ | PROT_WRITE);
  auto bells = base::Mapping::shared(fds[1], ipc::kBellFileSize, 0, PROT_READ | PROT_WRITE);
  if (!arena || !bells) return ENOMEM;
  context->arena = std::move(*arena);
  context->verbs.context.cmd_fd = fds[0].release();  // represents the session for ibv_import_device
  context->bells = std::move(*bells);
  context->doorbell = std::move(fds[3]);
  context->verbs.context.async_fd = fds[4].release();
  context->cheap_fence = reply.hello.cheap_fence != 0;
  context->grace_ms = reply.hello.grace_ms;
  context->node_guid = reply.hello.node_guid;
  context->capabilities = reply.hello.device();
  context->bell_file = std::move(fds[1]);
  context->events_wake = std::move(fds[own_events]);
  context->session.resumable(
      reply.hello, [context](base::Fd fresh) { context->replace_socket(std::move(fresh)); },
      [name = std::string(device.ibv.name)] { return socket_of(name); });
  memory.provide(std::move(fds[2]), own_events > 5 ? std::move(fds[5]) : base::Fd());
  return 0;
}

// An empty list does not tell the user that vrdmad was looked for in a wrong place.
void judge_named_run_directory() {
  const char* const named = named_run_directory();
  if (named == nullptr) return;
  static std::atomic<bool> judged = false;
  if (judged.exchange(true)) return;
  if (::access(named, F_OK) != 0)
    complain_of_variable("VRDMA_RUN_DIR", named,
                         "there is no such directory, so no vdevice is found: name the run "
                         "directory of a vrdmad (its --run-dir), or unset the variable");
  else if (::access((std::string(named) + "/netns").c_str(), F_OK) != 0)
    complain_of_variable("VRDMA_RUN_DIR", named,
                         "no vrdmad serves there (it has no netns/), so no vdevice is found: start "
                         "it, name its run directory, or unset the variable");
}

// Asks at a session socket.
int probe(const std::string& path, ipc::CmDeviceName* device) {
  Session session;
  if (const int error = session.open(path); error != 0) return error;
  ipc::Request request;
  ipc::Reply reply;
  request.call = ipc::Call::kProbe;
  const int error = session.call(request, &reply);
  static_assert(sizeof device->name >= sizeof reply.probe.name);
  device->node_guid = reply.probe.node_guid;
  std::copy(std::begin(reply.probe.name), std::end(reply.probe.name), device->name);
  return error;
}

// The child has no part in them: pages without content are in their place.
void blank(const base::Mapping& rings) {
  if (rings.valid())
    (void)raw::mmap(rings.bytes(), rings.size(), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

template <class Visit>
void each_rings(const Context& context, Visit visit) {
  visit(context.arena);
  visit(context.bells);
  if (!context.forks) return;
  for (const auto& [id, peer] : context.peers)
    if (const auto its = peer.lock()) {
      visit(its->arena);
      visit(its->bells);
    }
}

void advise(const base::Mapping& rings, int advice) {
  if (rings.valid()) (void)raw::madvise(rings.bytes(), rings.size(), advice);
}

// The child has the rings until leave_to_parent(): handlers of the program that run before would
// find room where they are, and blank() would take that from them.
void begin_fork(Context& context) {
  context.forks = context.mutex.try_lock();  // or another thread is in the middle of a call
  each_rings(context, [](const base::Mapping& rings) { advise(rings, MADV_DOFORK); });
}

void end_fork(Context& context) {
  each_rings(context, [](const base::Mapping& rings) { advise(rings, MADV_DONTFORK); });
  if (std::exchange(context.forks, false)) context.mutex.unlock();
}

// The sessions are the parent's. To the child its queue pairs are in RESET and its completion
// queues are empty, and what it asks the daemon is refused: see Session::call().
void leave_to_parent(Context& context) {
  each_rings(context, blank);
  context.given_up = true;
  if (std::exchange(context.forks, false)) context.mutex.unlock();
}

}  // namespace

OpenContexts& OpenContexts::instance() {
  static auto* all = [] {
    // Of the handlers before a fork the last one is called first: the order of the locks.
    (void)MemoryTable::instance();
    ::pthread_atfork(
        [] {
          instance().mutex.lock();
          for (Context* context : instance().contexts) begin_fork(*context);
        },
        [] {
          for (Context* context : instance().contexts) end_fork(*context);
          instance().mutex.unlock();
        },
        [] {
          for (Context* context : instance().contexts) leave_to_parent(*context);
          instance().mutex.unlock();
        });
    return new OpenContexts;  // never destroyed: for the goodbye at a normal exit
  }();
  return *all;
}

int scan_devices(std::vector<FoundDevice>* found) {
  const std::string directory = socket_directory();
  DIR* listing = directory.empty() ? nullptr : ::opendir(directory.c_str());
  if (listing == nullptr) {
    const int why = errno;
    if (why == EMFILE || (!directory.empty() && why == EACCES)) complain(why);
    if (!directory.empty() && why == ENOENT) judge_named_run_directory();
    return why == EMFILE ? EMFILE : 0;
  }
  DeviceNames names(directory);
  int lacks = 0;
  constexpr std::string_view kSuffix = ".sock";
  while (const dirent* entry = ::readdir(listing)) {
    const std::string_view file = entry->d_name;
    if (!file.ends_with(kSuffix) || file.size() == kSuffix.size()) continue;
    FoundDevice device;
    device.session = directory + "/" + std::string(file);
    if (::access(device.session.c_str(), W_OK) != 0) {  // connect(2) would fail
      complain(errno);
      continue;
    }
    // The answer has name and GUID, and shows that a daemon serves the socket. The socket of a dead
    // daemon is not a device.
    const auto number = static_cast<uint32_t>(std::strtoul(entry->d_name, nullptr, 10));
    ipc::CmDeviceName its{};
    int error = names.ask(number, &its);
    if (error != 0 && error != ENODEV) error = probe(device.session, &its);
    complain(error);
    if (error == EMFILE) lacks = EMFILE;
    if (error != 0) continue;
    device.name.assign(its.name, ::strnlen(its.name, sizeof its.name));
    if (device.name.empty() || device.name.size() >= IBV_SYSFS_NAME_MAX) continue;
    device.node_guid = its.node_guid;
    struct stat status {};
    if (::stat(device.session.c_str(), &status) == 0) device.generation = status.st_ino;
    found->push_back(std::move(device));
  }
  ::closedir(listing);
  std::sort(found->begin(), found->end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return lacks;
}

ibv_context* open_device(VirtualDevice* device) {
  auto context = std::make_unique<Context>();
  if (const int error = say_hello(context.get(), *device); error != 0) {
    complain(error);
    errno = error;
    return nullptr;
  }
  if (context->node_guid != device->node_guid) {  // the listed vdevice no longer exists
    errno = ENODEV;
    return nullptr;
  }
  set_ops(&context->verbs, device);
  context->verbs.priv =
      reinterpret_cast<verbs_ex_private*>(const_cast<Shortcuts*>(own_shortcuts()));
  context->verbs.context.num_comp_vectors = 1;
  hold_device(device);
  context->device = device;
  const std::lock_guard lock(OpenContexts::instance().mutex);
  OpenContexts::instance().contexts.insert(context.get());
  return context.release()->ibv();
}

Context::~Context() {
  if (arena.valid()) MemoryTable::instance().leave(*arena.at<ipc::HoldWords>(ipc::kHoldOffset));
  close_descriptors();
  if (device != nullptr) drop_device(device);
}

void Context::close_descriptors() {
  for (int* fd : {&verbs.context.cmd_fd, &verbs.context.async_fd})
    if (*fd >= 0) ::close(std::exchange(*fd, -1));
  arena_file = base::Fd();
}

// The daemon destroys the remaining objects of the session. The program may destroy its handles
// later; they keep the context's memory, and destroying them succeeds as after the daemon's end.
// Other verbs that call the daemon return EIO.
int close_device(ibv_context* ibv) {
  Context* context = Context::of(ibv);
  {
    const std::lock_guard lock(OpenContexts::instance().mutex);
    if (OpenContexts::instance().contexts.erase(context) == 0) return EINVAL;
  }
  // A child that fork(2) made leaves the session to its parent.
  if (context->session.is_own()) {
    context->session.goodbye(context->daemon_epoch());
    wait_for_initiators(*context);
  }
  context->close_descriptors();
  if (context->users.fetch_sub(1) == 1) delete context;
  return 0;
}

std::string exported_device(int cmd_fd) {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (::fcntl(cmd_fd, F_GET_SEALS) != kSeals) return {};
  ipc::ArenaHeader header{};
  if (::pread(cmd_fd, &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header) ||
      header.magic != ipc::kArenaMagic)
    return {};
  return {header.vdevice, ::strnlen(header.vdevice, sizeof header.vdevice)};
}

// Opens a separate session, which may import objects of the other one.
ibv_context* import_device(VirtualDevice* device, int cmd_fd) {
  ibv_context* ibv = open_device(device);
  if (ibv == nullptr) return nullptr;
  ipc::Request request;
  ipc::Reply reply;
  request.call = ipc::Call::kImportDevice;
  const int error = Context::of(ibv)->session.call(request, &reply, {cmd_fd});
  if (error != 0) {
    close_device(ibv);
    errno = error;
    return nullptr;
  }
  // The caller's, closed with the context.
  Context::of(ibv)->arena_file = base::Fd(std::exchange(ibv->cmd_fd, cmd_fd));
  return ibv;
}

void at_exit_goodbye() {
  OpenContexts& open = OpenContexts::instance();
  if (!open.mutex.try_lock()) return;
  for (Context* context : open.contexts)
    if (context->session.is_own()) context->session.goodbye(context->daemon_epoch());
  open.mutex.unlock();
}

int query_device_ex(ibv_context* ibv, ibv_device_attr_ex* attr) {
  Context* context = Context::of(ibv);
  ipc::Request request;
  ipc::Reply reply;
  request.call = ipc::Call::kQueryDevice;
  if (const int error = context->session.call(request, &reply); error != 0) return error;
  const ipc::DeviceReply& device = reply.device;
  const verbs::Capabilities& all = context->capabilities;
  ibv_device_attr& out = attr->orig_attr;
  std::strncpy(out.fw_ver, "vrdma-" VRDMA_VERSION, sizeof out.fw_ver - 1);
  out.node_guid = device.node_guid;
  out.sys_image_guid = device.node_guid;
  out.max_mr_size = device.max_mr_size;
  out.page_size_cap = all.page_sizes;
  out.vendor_id = all.vendor_id;
  out.vendor_part_id = all.vendor_part_id;
  out.hw_ver = all.hardware_version;
  out.max_qp = static_cast<int>(device.max_qp);
  out.max_qp_wr = static_cast<int>(device.max_qp_wr);
  out.device_cap_flags = all.flags;
  if (device.raw_packets != 0) out.device_cap_flags |= IBV_DEVICE_MANAGED_FLOW_STEERING;
  out.max_sge = static_cast<int>(device.max_sge);
  out.max_sge_rd = static_cast<int>(device.max_sge);
  out.max_cq = static_cast<int>(device.max_cq);
  out.max_cqe = static_cast<int>(device.max_cqe);
  out.max_mr = static_cast<int>(device.max_mr);
  out.max_pd = static_cast<int>(device.max_pd);
  out.max_qp_rd_atom = static_cast<int>(device.max_rd_atomic);
  out.max_qp_init_rd_atom = static_cast<int>(device.max_rd_atomic);
  out.max_res_rd_atom = static_cast<int>(device.max_rd_atomic * device.max_qp);
  out.atomic_cap = static_cast<ibv_atomic_cap>(all.atomics);
  out.max_mw = static_cast<int>(device.max_mw);
  out.max_mcast_grp = static_cast<int>(device.max_mcast_grp);
  out.max_mcast_qp_attach = static_cast<int>(device.max_mcast_qp_attach);
  out.max_total_mcast_qp_attach = static_cast<int>(device.max_mcast_grp);
  out.max_ah = static_cast<int>(device.max_ah);
  out.max_srq = static_cast<int>(device.max_srq);
  out.max_srq_wr = static_cast<int>(device.max_srq_wr);
  out.max_srq_sge = static_cast<int>(device.max_sge);
  out.max_pkeys = 1;
  out.local_ca_ack_delay = static_cast<uint8_t>(all.ack_delay);
  out.phys_port_cnt = 1;
  attr->phys_port_cnt_ex = 1;
  attr->completion_timestamp_mask = UINT64_MAX;
  attr->hca_core_clock = 1'000'000;  // kHz: the clock counts nanoseconds (kCompletionClock)
  attr->max_dm_size = all.max_device_memory;
  attr->device_cap_flags_ex = out.device_cap_flags;
  attr->odp_caps.general_caps = all.odp;
  attr->odp_caps.per_transport_caps.rc_odp_caps = all.odp_rc;
  attr->odp_caps.per_transport_caps.uc_odp_caps = all.odp_uc;
  attr->odp_caps.per_transport_caps.ud_odp_caps = all.odp_ud;
  attr->xrc_odp_caps = all.odp_xrc;
  // All other fields are zero, for features that vdevices lack: segmentation and checksums in
  // hardware (also of raw packets), RSS, pacing, tag matching, moderation.
  return 0;
}

int query_rt_values(ibv_context*, ibv_values_ex* values) {
  values->comp_mask &= IBV_VALUES_MASK_RAW_CLOCK;
  if (values->comp_mask != 0) ::clock_gettime(kCompletionClock, &values->raw_clock);
  return 0;
}

int query_port(ibv_context* ibv, uint32_t port_num, ibv_port_attr* attr) {
  if (port_num != 1) return EINVAL;
  ipc::Request request;
  ipc::Reply reply;
  request.call = ipc::Call::kQueryPort;
  if (const int error = Context::of(ibv)->session.call(request, &reply); error != 0) return error;
  const verbs::Capabilities& all = Context::of(ibv)->capabilities;
  attr->state = static_cast<ibv_port_state>(reply.port.state);
  attr->max_mtu = static_cast<ibv_mtu>(reply.port.max_mtu);
  attr->active_mtu = static_cast<ibv_mtu>(reply.port.active_mtu);
  attr->gid_tbl_len = static_cast<int>(reply.port.gid_count);
  attr->port_cap_flags = all.port_flags;
  attr->max_msg_sz = static_cast<uint32_t>(all.max_message);
  attr->pkey_tbl_len = 1;
  attr->max_vl_num = 1;
  attr->active_width = static_cast<uint8_t>(all.width);
  attr->active_speed = static_cast<uint8_t>(all.speed);
  attr->phys_state = reply.port.state == IBV_PORT_ACTIVE ? 5 : 3;  // LinkUp, Disabled
  attr->link_layer = IBV_LINK_LAYER_ETHERNET;
  attr->flags = IBV_QPF_GRH_REQUIRED;
  return 0;
}

namespace {

int read_gids(ibv_context* ibv, uint32_t first, ipc::Reply* reply) {
  ipc::Request request;
  request.call = ipc::Call::kQueryGids;
  request.gids.first = first;
  return Context::of(ibv)->session.call(request, reply);
}

bool is_empty(const ipc::GidsReply& reply, uint32_t position) {
  static constexpr uint8_t kEmpty[sizeof(ibv_gid)] = {};
  return std::memcmp(reply.gids[position], kEmpty, sizeof kEmpty) == 0;
}

void fill_gid(const ipc::GidsReply& reply, uint32_t position, uint32_t index,
              ibv_gid_entry* entry) {
  std::memset(entry, 0, sizeof *entry);
  std::memcpy(entry->gid.raw, reply.gids[position], sizeof entry->gid.raw);
  entry->gid_index = index;
  entry->port_num = 1;
  entry->gid_type = IBV_GID_TYPE_ROCE_V2;
  entry->ndev_ifindex = reply.ifindex;
}

}  // namespace

int query_gid_ex(ibv_context* ibv, uint32_t port_num, uint32_t index, ibv_gid_entry* entry) {
  if (port_num != 1) return EINVAL;
  ipc::Reply reply;
  if (const int error = read_gids(ibv, index, &reply); error != 0) return error;
  if (index >= reply.gids.table) return EINVAL;
  if (reply.gids.count == 0 || is_empty(reply.gids, 0)) return ENODATA;
  fill_gid(reply.gids, 0, index, entry);
  return 0;
}

ssize_t query_gid_table(ibv_context* ibv, ibv_gid_entry* entries, size_t max_entries) {
  uint32_t index = 0;
  size_t found = 0;
  for (;;) {
    ipc::Reply reply;
    if (const int error = read_gids(ibv, index, &reply); error != 0) return -error;
    for (uint32_t i = 0; i < reply.gids.count; ++i, ++index) {
      if (is_empty(reply.gids, i)) continue;
      if (found >= max_entries) return -EINVAL;
      fill_gid(reply.gids, i, index, &entries[found++]);
    }
    if (reply.gids.count == 0 || index >= reply.gids.total) return static_cast<ssize_t>(found);
  }
}

int query_pkey(ibv_context*, uint32_t port_num, int index, uint16_t* pkey_be) {
  if (port_num != 1 || index != 0) return EINVAL;
  *pkey_be = kDefaultPkey;  // the same in both byte orders
  return 0;
}

}  // namespace vrdma::client
