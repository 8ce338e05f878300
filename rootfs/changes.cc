#include "rootfs/changes.h"

#include <algorithm>

namespace hutch::rootfs {
namespace {

using Entry = Snapshot::Entry;

// One side of a directory that is being compared.
struct Side {
  const Snapshot* snapshot = nullptr;
  const Entry* directory = nullptr;  // nullptr: no such directory on this side (in the upper)
  bool shows_lower = false;          // what the upper does not have, the layers show

  bool sure() const { return directory == nullptr || directory->listed; }
  std::span<const Entry> children() const {
    return directory == nullptr ? std::span<const Entry>() : snapshot->children(*directory);
  }
  // The same of a directory in it.
  Side Child(const Entry* child) const {
    const bool is_directory = child != nullptr && child->kind == FileKind::kDirectory;
    return Side{
        .snapshot = snapshot,
        .directory = is_directory ? child : nullptr,
        .shows_lower = shows_lower && (child == nullptr || (is_directory && !child->opaque))};
  }
};

// What one side shows at a path.
struct Shown {
  FileKind kind;
  uint64_t size_bytes;
  const Entry* entry;  // nullptr: of the layers
};

class Differ {
 public:
  Differ(const LowerLayers* lower, size_t max_changes) : lower_(lower), max_(max_changes) {}

  void CompareRoot(const TrackedRoot& root, const Side& before, const Side& after) {
    path_ = root.target == "/" ? "" : root.target;
    Compare(before, after);
  }
  ChangeSet Take() { return std::move(set_); }

 private:
  // Both lists are sorted by name.
  void Compare(const Side& before, const Side& after) {
    if (!before.sure() || !after.sure()) set_.complete = false;
    const auto old_children = before.children(), new_children = after.children();
    size_t i = 0, j = 0;
    while (!full_ && (i < old_children.size() || j < new_children.size())) {
      const Entry* a = i < old_children.size() ? &old_children[i] : nullptr;
      const Entry* b = j < new_children.size() ? &new_children[j] : nullptr;
      const int order = a == nullptr ? 1
                        : b == nullptr
                            ? -1
                            : before.snapshot->name(*a).compare(after.snapshot->name(*b));
      const std::string_view name =
          order <= 0 ? before.snapshot->name(*a) : after.snapshot->name(*b);
      const size_t length = path_.size();
      path_.append("/").append(name);
      if (order <= 0) ++i;
      if (order >= 0) ++j;
      CompareEntry(before, order <= 0 ? a : nullptr, after, order >= 0 ? b : nullptr);
      path_.resize(length);
    }
  }

  std::optional<Shown> Look(const Side& side, const Entry* entry) const {
    if (entry != nullptr && entry->kind == FileKind::kWhiteout) return std::nullopt;
    if (entry != nullptr) return Shown{entry->kind, entry->size, entry};
    if (!side.shows_lower || lower_ == nullptr) return std::nullopt;
    const auto found = lower_->Find(path_);
    if (!found) return std::nullopt;
    return Shown{found->kind, found->size_bytes, nullptr};
  }

  void CompareEntry(const Side& before, const Entry* a, const Side& after, const Entry* b) {
    // Missing in a list that was cut proves nothing.
    if ((a == nullptr && !before.sure()) || (b == nullptr && !after.sure())) return;
    const auto old_shown = Look(before, a), new_shown = Look(after, b);
    if (!old_shown && !new_shown) return;
    if (!old_shown)
      Report(ChangeAction::kCreated, *new_shown);
    else if (!new_shown)
      Report(ChangeAction::kDeleted, *old_shown);
    else if (Differs(*old_shown, *new_shown))
      Report(ChangeAction::kModified, *new_shown);
    const Side inside_before = before.Child(a), inside_after = after.Child(b);
    if (inside_before.directory != nullptr || inside_after.directory != nullptr)
      Compare(inside_before, inside_after);
  }

  static bool Differs(const Shown& a, const Shown& b) {
    if (a.kind != b.kind) return true;
    const bool directory = a.kind == FileKind::kDirectory;
    if (a.entry == nullptr || b.entry == nullptr) {
      const Entry* in_upper = a.entry != nullptr ? a.entry : b.entry;
      return !directory || (in_upper != nullptr && in_upper->opaque);
    }
    const Entry &x = *a.entry, &y = *b.entry;
    if (x.ino != y.ino || x.mode != y.mode) return true;
    return !directory && (x.size != y.size || x.mtime_ns != y.mtime_ns || x.ctime_ns != y.ctime_ns);
  }

  void Report(ChangeAction action, const Shown& shown) {
    if (set_.changes.size() >= max_) {
      full_ = true;
      set_.complete = false;
      return;
    }
    const bool directory = shown.kind == FileKind::kDirectory;
    set_.changes.push_back({path_, action, directory ? 0 : shown.size_bytes, shown.kind});
  }

  const LowerLayers* lower_;
  size_t max_;
  std::string path_;
  ChangeSet set_;
  bool full_ = false;
};

}  // namespace

const char* ChangeActionName(ChangeAction action) {
  constexpr const char* kNames[] = {"created", "modified", "deleted"};
  return kNames[static_cast<size_t>(action)];
}

ChangeSet Diff(const Snapshot& before, const Snapshot& after, std::span<const TrackedRoot> roots,
               const LowerLayers* lower, size_t max_changes) {
  CHECK(before.root_count() == roots.size() && after.root_count() == roots.size());
  Differ differ(lower, max_changes);
  for (size_t i = 0; i < roots.size(); ++i)
    differ.CompareRoot(roots[i], Side{&before, &before.entry(i), roots[i].is_upper},
                       Side{&after, &after.entry(i), roots[i].is_upper});
  ChangeSet set = differ.Take();
  std::stable_sort(set.changes.begin(), set.changes.end(),
                   [](const FileChange& a, const FileChange& b) { return a.path < b.path; });
  return set;
}

}  // namespace hutch::rootfs
