// The contestants that are programs: bwrap, the OCI runtimes, podman, and none at all.
#include <fcntl.h>

#include <atomic>
#include <map>
#include <mutex>

#include "base/file.h"
#include "base/text.h"
#include "tools/bench/bundle.h"
#include "tools/bench/clock.h"
#include "tools/bench/contestant.h"
#include "tools/bench/rooted_worker.h"
#include "tools/process.h"

namespace hutch::tools {
namespace {

const Argv kTrue = {"/bin/true"};
const Argv kSleep = {"/bin/sleep", "100000"};

Result<double> TimeOf(const Argv& argv, const Streams& streams = {}) {
  const Stopwatch watch;
  ASSIGN_OR_RETURN(const pid_t pid, Spawn(argv, streams));
  ASSIGN_OR_RETURN(const int exit_code, WaitForExit(pid));
  const double elapsed_ms = watch.ElapsedMs();
  if (exit_code == 0) return elapsed_ms;
  return Error{.code = Code::kBadState,
               .what = argv[0] + " ended with " + std::to_string(exit_code)};
}

// Runs it once for its words: what a contestant that cannot work here says about it.
Status Try(const Argv& argv) {
  ASSIGN_OR_RETURN(const Finished finished, RunToEnd(argv));
  if (finished.exit_code == 0) return OkStatus();
  const std::string said = Split(Trim(finished.output), '\n').back();
  return Error{.code = Code::kUnavailable,
               .what = said.empty() ? "exit code " + std::to_string(finished.exit_code) : said};
}

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
      : setup_(setup), program_(std::move(program)), base_(setup.work + "/" + program_) {}
  ~OciRuntime() override {
    if (running_) IgnoreError(RunToEnd(Call({"delete", "--force", kRunning})), "best effort");
  }

  Status Prepare(size_t) override {
    if (running_) return OkStatus();
    ASSIGN_OR_RETURN(const Argv once, RunLine(kTrue));
    RETURN_IF_ERROR(Try(once));
    ASSIGN_OR_RETURN(const std::string bundle, BundleFor(kSleep));
    // Its streams are /dev/null: a pipe would be held open by the container.
    RETURN_IF_ERROR(TimeOf(Call({"run", "--detach", "--bundle", bundle, kRunning})));
    running_ = true;
    return OkStatus();
  }
  Result<double> Cold(const Argv& argv, size_t) override {
    ASSIGN_OR_RETURN(const Argv line, RunLine(argv));
    return TimeOf(line);
  }
  Result<double> Exec(const Argv& argv) override {
    Argv line = Call({"exec", kRunning});
    line.insert(line.end(), argv.begin(), argv.end());
    return TimeOf(line);
  }

 private:
  static constexpr const char* kRunning = "hutch-bench-running";

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
  std::atomic<unsigned> count_ = 0;
  std::mutex mutex_;
  std::map<Argv, std::string> bundles_;
  bool running_ = false;
};

class Podman : public Contestant {
 public:
  explicit Podman(const Setup& setup) : rootfs_(setup.rootfs) {}
  ~Podman() override {
    if (!running_.empty()) IgnoreError(RunToEnd({"podman", "rm", "-f", running_}), "best effort");
  }
  Status Prepare(size_t) override {
    if (!running_.empty()) return OkStatus();
    RETURN_IF_ERROR(Try(Line("--rm", kTrue)));
    ASSIGN_OR_RETURN(const Finished started, RunToEnd(Line("--detach", kSleep)));
    if (started.exit_code != 0)
      return Error{.code = Code::kUnavailable, .what = std::string(Trim(started.output))};
    running_ = Split(Trim(started.output), '\n').back();
    return OkStatus();
  }
  Result<double> Cold(const Argv& argv, size_t) override { return TimeOf(Line("--rm", argv)); }
  Result<double> Exec(const Argv& argv) override {
    Argv line = {"podman", "exec", running_};
    line.insert(line.end(), argv.begin(), argv.end());
    return TimeOf(line);
  }

 private:
  Argv Line(const char* how, const Argv& argv) const {
    // Its default rlimits may be above what this process can give.
    Argv line = {"podman",         "run",         how,
                 "--network=none", "--read-only", "--ulimit=nofile=1000:1000",
                 "--rootfs",       rootfs_};
    line.insert(line.begin() + 6, "--ulimit=nproc=1000:1000");
    line.insert(line.end(), argv.begin(), argv.end());
    return line;
  }
  std::string rootfs_, running_;
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
    {"crun", "crun", MakeCrun},
    {"runc", "runc", MakeRunc},
    {"podman", "podman", Make<Podman>},
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

}  // namespace hutch::tools
