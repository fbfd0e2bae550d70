#include "cli/hook/show.h"

#include "cli/hook/tree.h"

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
      case Mount::Kind::kDirectory:
        return done(root_.directory(step.to));
      case Mount::Kind::kLink:
        return root_.link(step.to, step.from);
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
    for (const auto& [path, mount] : covers_)
      if (auto closed = make_read_only(mount, path); !closed) return closed;
    return {};
  }

 private:
  static Result<void> done(Result<Fd> made) {
    if (!made) return base::pass(std::move(made).error());
    return {};
  }

  Result<void> cover(const std::string& path) {
    auto target = root_.directory(path);
    if (!target) return base::pass(std::move(target).error());
    auto mount = new_tmpfs();
    if (!mount) return base::pass(std::move(mount).error());
    auto attached = root_.attach(*mount, *target, path);
    covers_.emplace_back(path, std::move(*mount));
    return attached;
  }

  Result<void> bind(const Mount& step) {
    const auto& known = step.own ? own_ : sources_;
    const auto tree = known.find(step.own ? step.to : step.from);
    if (tree == known.end()) {
      if (step.own) return {};
      return base::fail(ENOENT, "the plan of mounts needs " + step.from + ", which is not known");
    }
    const auto target = step.file ? root_.file(step.to) : root_.directory(step.to);
    if (!target) return base::pass(target.error());
    return root_.attach(tree->second, *target, step.to);
  }

  const Root& root_;
  const Sources& sources_;
  Sources own_;  // by the place where it will be
  std::vector<std::pair<std::string, Fd>> covers_;
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
