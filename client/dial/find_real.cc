#include "client/dial/find_real.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>

#include "core/base/loader_directories.h"

namespace vrdma::client {
namespace {

// The object that this code was loaded from. Not a static variable: its guard would be a lock held
// across a call into the loader.
struct Own {
  Dl_info info{};
  link_map* map = nullptr;
  Own() {
    ::dladdr1(reinterpret_cast<void*>(&find_real), &info, reinterpret_cast<void**>(&map),
              RTLD_DL_LINKMAP);
  }
};

// A regular file other than the drop-in. The loader would wait for a writer of a FIFO.
bool may_be_loaded(const char* path) {
  struct stat theirs, ours;
  if (::stat(path, &theirs) != 0 || !S_ISREG(theirs.st_mode)) return false;
  return ::stat(Own().info.dli_fname, &ours) != 0 || theirs.st_dev != ours.st_dev ||
         theirs.st_ino != ours.st_ino;
}

void* load(const char* path) {
  if (!may_be_loaded(path)) return nullptr;
  void* handle = ::dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) return nullptr;
  // The path may have become the drop-in between stat(2) and dlopen(3), or name it in a way that
  // stat(2) does not reveal (an overlay). Calls into it would then recurse endlessly.
  link_map* loaded = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &loaded) == 0 && loaded != Own().map) return handle;
  ::dlclose(handle);
  return nullptr;
}

// Where the hook of container runtimes puts the image's library (cli/hook/setup.h), after it has
// bound the drop-in over that. On a host the directory may belong to the daemon's user, which must
// not choose what a program loads.
constexpr char kContainerPlace[] = "/run/vrdma", kContainerDirectory[] = "/run/vrdma/real";

bool is_in_prepared_container() {
  struct stat place;
  return ::stat(kContainerPlace, &place) == 0 && place.st_uid == 0 &&
         (place.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

void* load_from(const char* directory, const char* soname) {
  char path[64];
  (void)std::snprintf(path, sizeof path, "%s/%s", directory, soname);
  return load(path);
}

}  // namespace

void* find_real(const char* soname, const char* variable) {
  if (const char* path = ::secure_getenv(variable); path != nullptr) return load(path);
  if (is_in_prepared_container())
    if (void* handle = load_from(kContainerDirectory, soname); handle != nullptr) return handle;
  for (const char* directory : base::kLoaderDirectories)
    if (void* handle = load_from(directory, soname); handle != nullptr) return handle;
  return nullptr;
}

}  // namespace vrdma::client
