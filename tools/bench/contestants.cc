// The contestants that are programs: bwrap, the OCI runtimes, and none at all.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <atomic>
#include <map>
#include <mutex>

#include "base/file.h"
#include "tools/bench/bundle.h"
#include "tools/bench/containers.h"
#include "tools/bench/contestant.h"
#include "tools/bench/programs.h"
#include "tools/bench/rooted_worker.h"
#include "tools/process.h"

namespace hutch::tools {
namespace {

const Argv kTrue = {"/bin/true"};
const Argv kSleep = {"/bin/sleep", "100000"};

class Bwrap : public Contestant {
 public:
  explicit Bwrap(const Setup& setup) : rootfs_(setup.rootfs) {}
  Status Prepare(size_t) override { return Try(Line(kTrue)); }
  Result<double> Cold(const Argv& argv, size_t) override { return TimeOf(Line(argv)); }

 private:
  Argv Line(const Argv& argv) const {
    Argv line = {"bwrap", "--unshare-all", "--ro-bind", rootfs_,   "/",   "--proc",
                 "/proc", "--dev",         "/dev",      "--tmpfs", "/tmp"};
    line.insert(line.end(), argv.begin(), argv.end());
    return line;
  }
  std::string rootfs_;
};

// `PROGRAM run`, on a bundle for each command line.
class OciRuntime : public Contestant {
 public:
  OciRuntime(const Setup& setup, std::string program)
      : setup_(setup),
        program_(std::move(program)),
        base_(setup.work + "/" + program_.substr(program_.rfind('/') + 1)) {}
  ~OciRuntime() override {
    if (running_) IgnoreError(RunToEnd(Call({"delete", "--force", kRunning})), "best effort");
  }

  Status Prepare(size_t) override {
    if (running_) return OkStatus();
    RETURN_IF_ERROR(MakeNull());
    ASSIGN_OR_RETURN(const Argv once, RunLine(kTrue));
    RETURN_IF_ERROR(Try(once, null_.get()));
    ASSIGN_OR_RETURN(const std::string bundle, BundleFor(kSleep));
    // Not a pipe: the container would hold it open.
    RETURN_IF_ERROR(TimeOf(Call({"run", "--detach", "--bundle", bundle, kRunning}), Nowhere()));
    running_ = true;
    return OkStatus();
  }
  Result<double> Cold(const Argv& argv, size_t) override {
    ASSIGN_OR_RETURN(const Argv line, RunLine(argv));
    return TimeOf(line, Nowhere());
  }
  Result<double> Exec(const Argv& argv) override {
    Argv line = Call({"exec", kRunning});
    line.insert(line.end(), argv.begin(), argv.end());
    return TimeOf(line, Nowhere());
  }

 private:
  static constexpr const char* kRunning = "hutch-bench-running";

  // crun 1.8.1 gives its standard streams to the container's user: the host's /dev/null is not for
  // it.
  Status MakeNull() {
    const std::string path = base_ + "-null";
    if (::mknod(path.c_str(), S_IFCHR | 0666, makedev(1, 3)) != 0 && errno != EEXIST)
      return SysError(errno, path);
    ASSIGN_OR_RETURN(null_, Open(path, O_RDWR));
    return OkStatus();
  }
  Streams Nowhere() const { return {null_.get(), null_.get(), null_.get()}; }

  Argv Call(std::initializer_list<std::string> words) const {
    Argv line = {program_, "--root", base_ + "/state"};
    line.insert(line.end(), words);
    return line;
  }
  Result<Argv> RunLine(const Argv& argv) {
    ASSIGN_OR_RETURN(const std::string bundle, BundleFor(argv));
    return Call({"run", "--bundle", bundle, "hutch-bench-" + std::to_string(++count_)});
  }
  Result<std::string> BundleFor(const Argv& argv) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::string& bundle = bundles_[argv];
    if (!bundle.empty()) return bundle;
    const std::string made = base_ + "/bundle" + std::to_string(bundles_.size());
    RETURN_IF_ERROR(MakeBundle(made, setup_.rootfs, argv));
    return bundle = made;
  }

  Setup setup_;
  std::string program_, base_;
  UniqueFd null_;
  std::atomic<unsigned> count_ = 0;
  std::mutex mutex_;
  std::map<Argv, std::string> bundles_;
  bool running_ = false;
};

// posix_spawn in the same root file system, no isolation: the floor.
class Plain : public Contestant {
 public:
  explicit Plain(const Setup& setup) : rootfs_(setup.rootfs) {}
  Status Prepare(size_t slots) override {
    ASSIGN_OR_RETURN(null_, Open("/dev/null", O_RDWR));
    while (workers_.size() < slots) workers_.push_back(std::make_unique<RootedWorker>(rootfs_));
    RETURN_IF_ERROR(Cold(kTrue, 0));
    return OkStatus();
  }
  Result<double> Cold(const Argv& argv, size_t slot) override {
    const Streams streams = {null_.get(), null_.get(), null_.get()};  // the root may have none
    return workers_[slot]->Run([&] { return TimeOf(argv, streams); });
  }
  Result<double> Exec(const Argv& argv) override { return Cold(argv, 0); }

 private:
  std::string rootfs_;
  UniqueFd null_;
  std::vector<std::unique_ptr<RootedWorker>> workers_;
};

template <class T>
std::unique_ptr<Contestant> Make(const Setup& setup) {
  return std::make_unique<T>(setup);
}
std::unique_ptr<Contestant> MakeHutchOci(const Setup& setup) {
  return std::make_unique<OciRuntime>(setup, setup.oci_program);
}
std::unique_ptr<Contestant> MakeRunc(const Setup& setup) {
  return std::make_unique<OciRuntime>(setup, "runc");
}
std::unique_ptr<Contestant> MakeCrun(const Setup& setup) {
  return std::make_unique<OciRuntime>(setup, "crun");
}

constexpr ContestantRow kContestants[] = {
    {"hutch", "", MakeHutch},
    {"hutch (pools off)", "", MakeHutchPoolsOff},
    {"bwrap", "bwrap", Make<Bwrap>},
    {"hutch-oci", "", MakeHutchOci},
    {"crun", "crun", MakeCrun},
    {"runc", "runc", MakeRunc},
    {"podman", "podman", MakePodman},
    {"docker", "dockerd", MakeDocker},
    {"plain fork+exec", "", Make<Plain>},
};

}  // namespace

std::span<const ContestantRow> AllContestants() { return kContestants; }

Result<double> Contestant::Exec(const Argv&) {
  return Error{.code = Code::kUnsupported, .what = "has no sandbox that keeps running"};
}
Result<double> Contestant::Create(size_t) {
  return Error{.code = Code::kUnsupported, .what = "makes and runs in one step"};
}
Result<double> Contestant::CopyIn(const std::string&, const std::string&) {
  return Error{.code = Code::kUnsupported, .what = "copies no files"};
}
void Contestant::RemoveCopy(const std::string& path) {
  IgnoreError(Exec({"/bin/rm", "-rf", path}), "the next copy says what is wrong");
}
Result<double> Contestant::CopyOut(const std::string&, const std::string&) {
  return Error{.code = Code::kUnsupported, .what = "copies no files"};
}

}  // namespace hutch::tools
