// The contestants with an engine of their own: podman and docker. Both get the same image, made
// without a registry, and state below the work directory, so that nothing of the host's is touched.
#include "tools/bench/containers.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <thread>

#include "base/file.h"
#include "base/text.h"
#include "tools/bench/programs.h"
#include "tools/process.h"

namespace hutch::tools {
namespace {

constexpr const char* kImage = "hutch-bench:latest";
constexpr const char* kRunning = "hutch-bench-running";

// An engine whose command line is docker's.
class Engine : public Contestant {
 public:
  explicit Engine(const Setup& setup) : setup_(setup) {}

  Status Prepare(size_t) override {
    if (running_) return OkStatus();
    RETURN_IF_ERROR(Begin());
    RETURN_IF_ERROR(Import());
    RETURN_IF_ERROR(Try(Call({"run", "--rm", "--read-only"}, {kImage, "/bin/true"})));
    RETURN_IF_ERROR(
        Try(Call({"run", "--detach", "--name", kRunning}, {kImage, "/bin/sleep", "100000"})));
    running_ = true;
    return OkStatus();
  }
  Result<double> Cold(const Argv& argv, size_t slot) override {
    // dockerd was seen to answer a part of a hundred at once and the rest never.
    if (slot > 0) return Error{.code = Code::kUnsupported, .what = "is measured one at a time"};
    Argv line = Call({"run", "--rm", "--read-only"}, {kImage});
    line.insert(line.end(), argv.begin(), argv.end());
    return TimeOf(line);
  }
  Result<double> Exec(const Argv& argv) override {
    Argv line = Plain({"exec", kRunning});
    line.insert(line.end(), argv.begin(), argv.end());
    return TimeOf(line);
  }
  Result<double> CopyIn(const std::string& from, const std::string& to) override {
    return TimeOf(Plain({"cp", from, std::string(kRunning) + ":" + to}));
  }
  Result<double> CopyOut(const std::string& from, const std::string& to) override {
    return TimeOf(Plain({"cp", std::string(kRunning) + ":" + from, to}));
  }

 protected:
  // What makes the engine itself usable; the words all its calls begin with.
  virtual Status Begin() = 0;
  virtual Argv Words() const = 0;
  virtual Argv RunOptions() const { return {}; }
  void RemoveRunning() {
    if (running_) IgnoreError(RunToEnd(Plain({"rm", "--force", kRunning})), "best effort");
    running_ = false;
  }
  const Setup& setup() const { return setup_; }

 private:
  Argv Plain(const Argv& words) const {
    Argv line = Words();
    line.insert(line.end(), words.begin(), words.end());
    return line;
  }
  Argv Call(const Argv& run, const Argv& rest) const {
    Argv line = Plain(run);
    line.emplace_back("--network=none");
    for (const Argv& more : {RunOptions(), rest}) line.insert(line.end(), more.begin(), more.end());
    return line;
  }
  Status Import() {
    const std::string tar = setup_.work + "/rootfs.tar";
    if (!PathExists(tar)) RETURN_IF_ERROR(Try({"tar", "-C", setup_.rootfs, "-cf", tar, "."}));
    return Try(Plain({"import", tar, kImage}));
  }

  Setup setup_;
  bool running_ = false;
};

class Podman : public Engine {
 public:
  using Engine::Engine;
  ~Podman() override {
    RemoveRunning();
    // Its layers are mounted nowhere now; without this its locks and database would stay in use.
    IgnoreError(RunToEnd(WithRuntime({"system", "reset", "--force"})), "the directory goes anyway");
  }

 private:
  Argv WithRuntime(const Argv& words) const {
    Argv line = {"podman", "--root", setup().work + "/podman", "--runroot",
                 setup().work + "/podman-run"};
    if (!runtime_.empty()) line.push_back("--runtime=" + runtime_);
    line.insert(line.end(), words.begin(), words.end());
    return line;
  }
  // crun, its default, refuses hosts of hybrid cgroups; runc does not.
  Status Begin() override {
    runtime_ = PathExists("/sys/fs/cgroup/unified") ? "runc" : "";
    return OkStatus();
  }
  Argv Words() const override { return WithRuntime({}); }
  // Its default rlimits may be above what this process can give.
  Argv RunOptions() const override {
    return {"--ulimit=nofile=1000:1000", "--ulimit=nproc=1000:1000"};
  }

  std::string runtime_;
};

// A daemon of its own with a socket and all its state below the work directory; ended with this.
class Docker : public Engine {
 public:
  using Engine::Engine;
  ~Docker() override {
    RemoveRunning();
    if (daemon_ <= 0) return;
    ::kill(daemon_, SIGTERM);
    IgnoreError(WaitForExit(daemon_), "it ends in its own time");
  }

 private:
  static constexpr int kStartSeconds = 60;

  std::string At(const char* name) const { return setup().work + "/docker-" + name; }
  std::string Host() const { return "unix://" + At("socket"); }
  Argv Words() const override { return {"docker", "--host", Host()}; }

  Status Begin() override {
    if (daemon_ > 0) return OkStatus();
    ASSIGN_OR_RETURN(const UniqueFd log, hutch::Open(At("log"), O_WRONLY | O_CREAT, 0600));
    const Streams streams = {-1, log.get(), log.get()};
    ASSIGN_OR_RETURN(daemon_, Spawn({"dockerd", "--host", Host(), "--data-root", At("data"),
                                     "--exec-root", At("exec"), "--pidfile", At("pid"),
                                     "--iptables=false", "--ip6tables=false", "--bridge=none"},
                                    streams));
    for (int second = 0; second < kStartSeconds; ++second) {
      if (Try({"docker", "--host", Host(), "version"})) return OkStatus();
      if (::waitpid(daemon_, nullptr, WNOHANG) == daemon_) {
        daemon_ = 0;
        break;
      }
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
    const auto said = ReadFile(At("log"), size_t{16} << 20);
    return Error{.code = Code::kUnavailable,
                 .what = "dockerd does not start: " +
                         (said ? Split(Trim(*said), '\n').back() : said.error().what)};
  }

  pid_t daemon_ = 0;
};

}  // namespace

std::unique_ptr<Contestant> MakePodman(const Setup& setup) {
  return std::make_unique<Podman>(setup);
}
std::unique_ptr<Contestant> MakeDocker(const Setup& setup) {
  return setup.with_docker ? std::make_unique<Docker>(setup) : nullptr;
}

}  // namespace hutch::tools
