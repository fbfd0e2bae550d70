#include "cli/hook/show.h"

#include <utility>
#include <vector>

#include "cli/mounts/tree.h"

namespace vrdma::cli::hook {

namespace {

using base::Fd;
using base::Result;

class Shower {
 public:
  Shower(const Root& root, const Sources& sources) : root_(root), sources_(sources) {}

  // What the plan covers is cloned before the first step.
  void keep_own(const Plan& plan) {
    for (const auto& step : plan) {
      if (step.kind != Mount::Kind::kBind || !step.own) continue;
      const auto found = root_.find(step.from);
      if (!found) continue;  // vanished
      if (auto tree = clone_whole(*found, step.from)) own_[step.to] = std::move(*tree);
    }
  }

  Result<void> carry_out(const Mount& step) {
    switch (step.kind) {
      case Mount::Kind::kDirectory: {
        const auto [root, path] = at(step.to);
        return done(root.directory(path));
      }
      case Mount::Kind::kLink: {
        const auto [root, path] = at(step.to);
        return root.link(path, step.from);
      }
      case Mount::Kind::kTmpfs:
        return cover(step.to);
      case Mount::Kind::kBind:
        return bind(step);
      case Mount::Kind::kSysfs:  // the runtime has mounted it
        break;
    }
    return {};
  }

  Result<void> close_covers() {
    for (const auto& cover : covers_)
      if (auto closed = make_read_only(cover.mount, cover.path); !closed) return closed;
    return {};
  }

 private:
  struct Cover {
    std::string path;
    Fd mount;
    Root root;  // of the mount
  };

  // Where a path of the container is: in a cover from its own top, because others may be able to
  // change what leads there, a volume for example.
  [[nodiscard]] std::pair<const Root&, std::string> at(const std::string& path) const {
    for (auto cover = covers_.rbegin(); cover != covers_.rend(); ++cover)
      if (path.starts_with(cover->path + "/"))
        return {cover->root, path.substr(cover->path.size())};
    return {root_, path};
  }

  static Result<void> done(Result<Fd> made) {
    if (!made) return base::pass(std::move(made).error());
    return {};
  }

  Result<void> cover(const std::string& whole) {
    const auto [root, path] = at(whole);
    auto target = root.directory(path);
    if (!target) return base::pass(std::move(target).error());
    auto mount = new_tmpfs();
    if (!mount) return base::pass(std::move(mount).error());
    if (auto attached = root.attach(*mount, *target, path); !attached) return attached;
    auto inside = root.inside(*mount, path);
    if (!inside) return base::pass(std::move(inside).error());
    covers_.push_back({whole, std::move(*mount), std::move(*inside)});
    return {};
  }

  Result<void> bind(const Mount& step) {
    const auto& known = step.own ? own_ : sources_;
    const auto tree = known.find(step.own ? step.to : step.from);
    if (tree == known.end()) {
      if (step.own) return {};
      return base::fail(ENOENT, "the plan of mounts needs " + step.from + ", which is not known");
    }
    const auto [root, path] = at(step.to);
    const auto target = step.file ? root.file(path) : root.directory(path);
    if (!target) return base::pass(target.error());
    return root.attach(tree->second, *target, path);
  }

  const Root& root_;
  const Sources& sources_;
  Sources own_;  // by the place where it will be
  std::vector<Cover> covers_;
};

}  // namespace

Result<void> show(const Root& root, const Plan& plan, const Sources& sources) {
  Shower shower(root, sources);
  shower.keep_own(plan);
  for (const auto& step : plan)
    if (auto done = shower.carry_out(step); !done && !step.optional) return done;
  return shower.close_covers();
}

}  // namespace vrdma::cli::hook
