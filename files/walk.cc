#include "files/walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/unique_fd.h"
#include "files/errors.h"
#include "files/limits.h"
#include "files/request.h"

namespace hutch::files {
namespace {

struct Name {
  std::string text;
  unsigned char type;
  bool operator<(const Name& other) const { return text < other.text; }
};

bool IsDots(const std::string& name) { return name == "." || name == ".."; }

// Opens a directory for reading; O_NONBLOCK for the FIFO that may have taken its name.
UniqueFd OpenDirectoryAt(int dir_fd, const char* name, int more_flags) {
  return UniqueFd(
      ::openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC | more_flags));
}

// The names of one directory in order, a bounded number at a time: each refill reads the directory
// once and keeps the smallest names behind the last one given out.
class SortedNames {
 public:
  SortedNames(UniqueFd fd, std::string from, bool inclusive)
      : dir_(::fdopendir(fd.get()), ::closedir), last_(std::move(from)), inclusive_(inclusive) {
    if (dir_ != nullptr) IgnoreRelease(fd);
  }
  bool valid() const { return dir_ != nullptr; }
  int fd() const { return ::dirfd(dir_.get()); }

  // False at the end. `steps` counts the names read from the kernel.
  bool Next(Name* name, uint64_t* steps) {
    if (at_ == names_.size() && (complete_ || !Refill(steps))) return false;
    *name = std::move(names_[at_++]);
    return true;
  }

 private:
  static void IgnoreRelease(UniqueFd& fd) { fd.release(); }  // the DIR owns it
  bool IsBehind(const std::string& name) const { return inclusive_ ? name >= last_ : name > last_; }
  bool Refill(uint64_t* steps) {
    if (!names_.empty()) {
      last_ = largest_;
      inclusive_ = false;
    }
    names_.clear();
    at_ = 0;
    complete_ = true;
    ::rewinddir(dir_.get());
    while (const dirent* entry = ::readdir(dir_.get())) {
      ++*steps;
      std::string name = entry->d_name;
      if (IsDots(name) || !IsBehind(name)) continue;
      Keep({std::move(name), entry->d_type});
    }
    std::sort(names_.begin(), names_.end());
    if (!names_.empty()) largest_ = names_.back().text;
    return !names_.empty();
  }
  // A heap with the largest name on top: it goes when a smaller one needs its place.
  void Keep(Name name) {
    if (names_.size() >= kMaxSortedNames) {
      complete_ = false;
      if (names_.front() < name) return;
      std::pop_heap(names_.begin(), names_.end());
      names_.pop_back();
    }
    names_.push_back(std::move(name));
    std::push_heap(names_.begin(), names_.end());
  }

  std::unique_ptr<DIR, int (*)(DIR*)> dir_;
  std::string last_, largest_;
  bool inclusive_;
  bool complete_ = false;
  std::vector<Name> names_;
  size_t at_ = 0;
};

class Walker {
 public:
  Walker(const WalkOptions& options, const std::function<Result<Step>(const WalkedEntry&)>& visit)
      : options_(options), visit_(visit) {}

  // `after` is what of the cursor lies in this directory.
  Status Directory(UniqueFd fd, const std::string& relative, const std::string& after,
                   size_t depth) {
    const size_t slash = after.find('/');
    const std::string first = after.substr(0, slash);
    const std::string rest = slash == std::string::npos ? "" : after.substr(slash + 1);
    SortedNames names(std::move(fd), first, true);
    if (!names.valid()) return FileError(errno, "open", relative);
    Name name;
    while (!outcome.stopped && names.Next(&name, &steps_)) {
      const bool was_visited = !after.empty() && name.text == first;
      RETURN_IF_ERROR(Entry(names.fd(), name, JoinPath(relative, name.text), was_visited,
                            was_visited ? rest : "", depth));
      // Each answer gets further, however large its directory.
      if (steps_ > options_.max_steps && outcome.last != options_.after) outcome.stopped = true;
    }
    return OkStatus();
  }

  WalkOutcome outcome;

 private:
  Status Entry(int dir_fd, const Name& name, const std::string& relative, bool was_visited,
               const std::string& after, size_t depth) {
    bool descend = name.type == DT_DIR;
    if (name.type == DT_UNKNOWN) {
      struct stat st {};
      descend = ::fstatat(dir_fd, name.text.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                S_ISDIR(st.st_mode);
    }
    if (!was_visited) {
      ++steps_;
      ASSIGN_OR_RETURN(const Step step, visit_({dir_fd, name.text, relative, descend}));
      if (step == Step::kStop) return outcome.stopped = true, OkStatus();
      outcome.last = relative;
      descend = descend && step == Step::kGoOn;
    }
    if (!descend || depth >= std::min(options_.max_depth, kMaxTreeDepth)) return OkStatus();
    UniqueFd fd = OpenDirectoryAt(dir_fd, name.text.c_str(), O_NOFOLLOW);
    if (!fd.valid()) return ++outcome.unreadable, OkStatus();
    return Directory(std::move(fd), relative, after, depth + 1);
  }

  const WalkOptions& options_;
  const std::function<Result<Step>(const WalkedEntry&)>& visit_;
  uint64_t steps_ = 0;
};

}  // namespace

Result<WalkOutcome> Walk(const std::string& path, const WalkOptions& options,
                         const std::function<Result<Step>(const WalkedEntry&)>& visit) {
  UniqueFd fd = OpenDirectoryAt(AT_FDCWD, path.c_str(), 0);
  if (!fd.valid()) return FileError(errno, "open", path);
  Walker walker(options, visit);
  walker.outcome.last = options.after;
  RETURN_IF_ERROR(walker.Directory(std::move(fd), "", options.after, 1));
  return std::move(walker.outcome);
}

}  // namespace hutch::files
