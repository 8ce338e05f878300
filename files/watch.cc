// Telling what happens below a path: inotify, with a watch for each directory of the tree.
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>

#include "base/unique_fd.h"
#include "files/errors.h"
#include "files/limits.h"
#include "files/operations.h"
#include "files/request.h"
#include "files/walk.h"

namespace hutch::files {
namespace {

constexpr uint32_t kWatched = IN_CREATE | IN_DELETE | IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB |
                              IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF;
constexpr uint32_t kAdded = kWatched | IN_ONLYDIR | IN_DONT_FOLLOW | IN_EXCL_UNLINK;

struct KindRow {
  uint32_t mask;
  const char* kind;
};
constexpr KindRow kKinds[] = {
    {IN_CREATE, "created"},      {IN_DELETE, "deleted"},  {IN_MODIFY, "modified"},
    {IN_CLOSE_WRITE, "written"}, {IN_ATTRIB, "metadata"}, {IN_MOVED_FROM, "moved_from"},
    {IN_MOVED_TO, "moved_to"},
};

class Watcher {
 public:
  Watcher(Io& io, std::string root, bool recursive)
      : io_(io), root_(std::move(root)), recursive_(recursive) {}

  Status Start() {
    fd_.reset(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (!fd_.valid()) return FileError(errno, "watch", root_);
    struct stat st {};
    if (::stat(root_.c_str(), &st) != 0) return FileError(errno, "watch", root_);
    root_wd_ = ::inotify_add_watch(fd_.get(), root_.c_str(), kWatched);
    if (root_wd_ < 0) return WatchError(root_);
    paths_[root_wd_] = root_;
    if (recursive_ && S_ISDIR(st.st_mode)) RETURN_IF_ERROR(AddBelow(root_, Told::kNo));
    return io_.reply.Ok({{"watches", paths_.size()}});
  }

  // Runs until the path itself is gone, or nobody reads any longer.
  Status Run() {
    alignas(inotify_event) char buffer[64 * 1024];
    while (!gone_) {
      struct pollfd waited[] = {{.fd = fd_.get(), .events = POLLIN, .revents = 0},
                                {.fd = io_.reply.fd(), .events = 0, .revents = 0}};
      if (::poll(waited, 2, -1) < 0 && errno != EINTR) return FileError(errno, "watch", root_);
      if (waited[1].revents != 0) return OkStatus();
      const ssize_t n = ::read(fd_.get(), buffer, sizeof buffer);
      if (n < 0 && errno != EAGAIN && errno != EINTR) return FileError(errno, "watch", root_);
      for (ssize_t at = 0; at < n && !gone_;) {
        const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
        at += static_cast<ssize_t>(sizeof *event + event->len);
        RETURN_IF_ERROR(One(*event));
      }
      RETURN_IF_ERROR(io_.reply.Flush());
    }
    return io_.reply.Line("done", {{"gone", true}}).has_value() ? io_.reply.Flush() : OkStatus();
  }

 private:
  enum class Told { kNo, kYes };

  static Error WatchError(const std::string& path) {
    Error error = FileError(errno, "watch", path);
    if (errno == ENOSPC) error.code = Code::kLimit;  // of watches, not of disk
    return error;
  }

  Status Tell(const char* kind, const std::string& path, const inotify_event* event) {
    oci::Json json = {{"kind", kind}};
    PutPath(json, "path", path);
    if (event != nullptr) json["is_directory"] = (event->mask & IN_ISDIR) != 0;
    if (event != nullptr && event->cookie != 0) json["cookie"] = event->cookie;
    return io_.reply.Line("event", json);
  }

  Status Add(const std::string& path) {
    if (paths_.size() >= kMaxWatches)
      return Error{.code = Code::kLimit,
                   .what = "more than " + std::to_string(kMaxWatches) + " directories to watch"};
    const int wd = ::inotify_add_watch(fd_.get(), path.c_str(), kAdded);
    if (wd >= 0) {
      paths_[wd] = path;
      return OkStatus();
    }
    // Gone, replaced, or not to be read: what can be watched is.
    if (errno == ENOENT || errno == ENOTDIR || errno == EACCES) return OkStatus();
    return WatchError(path);
  }

  // Watches the directories below. What came before its directory was watched is told as created.
  Status AddBelow(const std::string& path, Told told) {
    auto outcome =
        Walk(path, {.max_depth = kMaxTreeDepth}, [&](const WalkedEntry& walked) -> Result<Step> {
          const std::string shown = JoinPath(path, walked.relative);
          if (told == Told::kYes) RETURN_IF_ERROR(Tell("created", shown, nullptr));
          if (walked.is_directory) RETURN_IF_ERROR(Add(shown));
          return Step::kGoOn;
        });
    if (outcome || outcome.error().code == Code::kLimit || path == root_)
      return outcome ? OkStatus() : Status(outcome.error());
    return OkStatus();  // gone again
  }

  Status Overflow() {
    RETURN_IF_ERROR(Tell("overflow", root_, nullptr));
    // Directories may have come unseen.
    return recursive_ ? AddBelow(root_, Told::kNo) : OkStatus();
  }

  // A directory that moved within the tree has its new name by now, told by its parent. One that
  // left takes its watches along, which would tell of it under its old name.
  Status Moved(int wd, const std::string& path) {
    if (::inotify_add_watch(fd_.get(), path.c_str(), kAdded) == wd) return OkStatus();
    const std::string below = path + "/";
    std::erase_if(paths_, [&](const auto& watch) {
      if (watch.first != wd && !watch.second.starts_with(below)) return false;
      ::inotify_rm_watch(fd_.get(), watch.first);
      return true;
    });
    return OkStatus();
  }

  Status One(const inotify_event& event) {
    if ((event.mask & IN_Q_OVERFLOW) != 0) return Overflow();
    const auto found = paths_.find(event.wd);
    if (found == paths_.end()) return OkStatus();
    if (event.wd == root_wd_ && (event.mask & (IN_IGNORED | IN_DELETE_SELF | IN_MOVE_SELF)) != 0)
      return gone_ = true, OkStatus();
    if ((event.mask & IN_MOVE_SELF) != 0) return Moved(event.wd, found->second);
    if ((event.mask & (IN_IGNORED | IN_DELETE_SELF)) != 0) {
      paths_.erase(found);
      return OkStatus();
    }
    const std::string path = event.len > 0 ? JoinPath(found->second, event.name) : found->second;
    for (const KindRow& row : kKinds)
      if ((event.mask & row.mask) != 0) RETURN_IF_ERROR(Tell(row.kind, path, &event));
    if (!recursive_ || (event.mask & IN_ISDIR) == 0 ||
        (event.mask & (IN_CREATE | IN_MOVED_TO)) == 0)
      return OkStatus();
    RETURN_IF_ERROR(Add(path));
    return AddBelow(path, (event.mask & IN_CREATE) != 0 ? Told::kYes : Told::kNo);
  }

  Io& io_;
  std::string root_;
  bool recursive_;
  UniqueFd fd_;
  int root_wd_ = -1;
  std::map<int, std::string> paths_;
  bool gone_ = false;
};

}  // namespace

Status Watch(const oci::Json& request, Io& io) {
  std::string path;
  bool recursive = false;
  auto reader = Members(request);
  ReadPath(reader, "path", &path);
  reader.Bool("recursive", &recursive);
  RETURN_IF_ERROR(reader.Done(oci::ObjectReader::Unknown::kRefuse));
  Watcher watcher(io, path, recursive);
  RETURN_IF_ERROR(watcher.Start());
  return watcher.Run();
}

}  // namespace hutch::files
