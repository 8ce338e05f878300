#include "tests/kernel/runtime/sandbox_fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>
#include <thread>

#include "base/file.h"

namespace hutch::runtime {
namespace {

constexpr int kPatienceMs = 60000;  // generous: the same tests run in an emulated kernel

template <class T>
T Must(Result<T> result) {
  if (!result) {
    ADD_FAILURE() << result.error().ToString();
    std::abort();
  }
  return std::move(result).value();
}

void MakeLayer(const std::string& layer) {
  Must(MakeDirectories(layer + "/bin", 0755));
  Must(MakeDirectories(layer + "/etc", 0755));
  const std::string busybox = Must(ReadFile("/bin/busybox", 64u << 20));
  const UniqueFd fd = Must(Open(layer + "/bin/busybox", O_WRONLY | O_CREAT | O_EXCL, 0755));
  Must(WriteAll(fd.get(), busybox));
  for (const char* name :
       {"sh",    "true",   "false", "cat",   "id",   "sleep",   "echo",     "mount",  "ls",
        "touch", "grep",   "dd",    "ps",    "kill", "head",    "hostname", "ip",     "readlink",
        "wc",    "env",    "pwd",   "stat",  "df",   "unshare", "mkdir",    "rm",     "seq",
        "tr",    "printf", "find",  "chown", "test", "nc",      "setsid",   "ulimit", "umount"})
    ASSERT_EQ(::symlink("busybox", (layer + "/bin/" + name).c_str()), 0);
  const UniqueFd text = Must(Open(layer + "/bin/not-a-program", O_WRONLY | O_CREAT, 0644));
  ::chmod(layer.c_str(), 0755);
}

}  // namespace

int Outcome::exit_code() const {
  return WIFEXITED(event.wait_status) ? WEXITSTATUS(event.wait_status) : -1;
}
int Outcome::term_signal() const {
  return WIFSIGNALED(event.wait_status) ? WTERMSIG(event.wait_status) : 0;
}

void SandboxTest::SetUp() {
  char pattern[] = "/tmp/hutch-test-XXXXXX";
  ASSERT_NE(::mkdtemp(pattern), nullptr);
  dir_ = pattern;
  layer_dir_ = dir_ + "/layer";
  MakeLayer(layer_dir_);
  ::umask(077);  // as hutchd runs; the layer above stands for one that was unpacked
  const cgroups::Layout layout = Must(cgroups::DetectLayout());
  tree_ = std::make_unique<cgroups::Tree>(
      Must(cgroups::Tree::Open(layout, {.parent = "/hutch-test-" + std::to_string(::getpid())})));
  StartRuntime(Pools::kOff, 0);
}

void SandboxTest::StartRuntime(Pools pools, uint32_t blanks) {
  const RuntimeConfig config{.run_dir = dir_ + "/run",
                             .state_dir = dir_ + "/state",
                             .init_path = HUTCH_INIT_PATH,
                             .pools = pools,
                             .blanks = blanks};
  runtime_ = Must(Runtime::Start(config, *tree_));
}

void SandboxTest::StopRuntime() { runtime_.reset(); }

void SandboxTest::TearDown() {
  runtime_.reset();
  if (tree_) {
    // The spawn server ends with its socket; its leaf is busy until then.
    for (int i = 0; i < 400 && !tree_->RemoveParents(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const Status removed = tree_->RemoveParents();
    EXPECT_TRUE(removed.has_value()) << removed.error().ToString();
  }
  IgnoreError(RemoveTree(dir_),
              "mounts of our own namespace may be below; the directory goes with the process");
}

std::vector<UniqueFd> SandboxTest::Layers() const {
  std::vector<UniqueFd> layers;
  layers.push_back(Must(Open(layer_dir_, O_PATH | O_DIRECTORY)));
  return layers;
}

void SandboxTest::Pump(int timeout_ms) {
  pollfd p{runtime_->spawner_fd(), POLLIN, 0};
  ::poll(&p, 1, timeout_ms);
  for (const RuntimeEvent& event : runtime_->Dispatch())
    if (event.error) ADD_FAILURE() << event.error->ToString();
}

std::unique_ptr<Sandbox> SandboxTest::Make(oci::Spec spec, std::optional<Error>* error) {
  auto begun =
      runtime_->Begin({.spec = std::move(spec), .layers = Layers(), .scratch_bytes = 64u << 20});
  std::optional<Error> failure;
  if (!begun) failure = std::move(begun).error();
  std::unique_ptr<Sandbox> sandbox = failure ? nullptr : std::move(*begun);
  for (bool ready = failure.has_value(); !ready;) {
    pollfd polls[2] = {{runtime_->spawner_fd(), POLLIN, 0}, {sandbox->agent_fd(), POLLIN, 0}};
    if (::poll(polls, 2, kPatienceMs) <= 0)
      failure = Error{.what = "not ready in time"}, ready = true;
    for (RuntimeEvent& event : runtime_->Dispatch())
      if (event.error) failure = std::move(event.error), ready = true;
    for (AgentEvent& event : sandbox->ReadAgent()) {
      if (event.kind == AgentEvent::Kind::kReady)
        ready = true;
      else
        failure = event.error ? *event.error : Error{.what = "agent closed"}, ready = true;
    }
  }
  if (!failure) return sandbox;
  if (sandbox) Destroy(*sandbox);
  if (error != nullptr)
    *error = failure;
  else
    ADD_FAILURE() << failure->ToString();
  return nullptr;
}

AgentEvent SandboxTest::WaitProcess(Sandbox& sandbox, uint32_t process) {
  while (true) {
    pollfd p{sandbox.agent_fd(), POLLIN, 0};
    if (::poll(&p, 1, kPatienceMs) <= 0) return {.kind = AgentEvent::Kind::kClosed};
    for (AgentEvent& event : sandbox.ReadAgent()) {
      if (event.kind == AgentEvent::Kind::kClosed) return event;
      if (event.process == process && event.kind != AgentEvent::Kind::kStarted) return event;
    }
  }
}

Outcome SandboxTest::RunAs(Sandbox& sandbox, std::vector<std::string> args, const oci::Spec& spec) {
  Pipe out = Must(MakePipe(0)), err = Must(MakePipe(0));
  ::fcntl(out.write.get(), F_SETPIPE_SZ, 1 << 20);
  ProcessRequest request;
  request.spec = spec.process;
  request.spec.args = std::move(args);
  request.stdout_fd = out.write.get();
  request.stderr_fd = err.write.get();
  Outcome outcome{};
  auto started = sandbox.StartProcess(request);
  if (!started) {
    outcome.event = {.kind = AgentEvent::Kind::kStartFailed, .error = started.error()};
    return outcome;
  }
  out.write.reset();
  err.write.reset();
  outcome.event = WaitProcess(sandbox, *started);
  for (auto [fd, text] :
       {std::pair{out.read.get(), &outcome.out}, std::pair{err.read.get(), &outcome.err}}) {
    ::fcntl(fd, F_SETFL, O_NONBLOCK);  // a child left behind may hold the other end
    char buffer[65536];
    for (ssize_t n; (n = ::read(fd, buffer, sizeof buffer)) > 0;)
      text->append(buffer, static_cast<size_t>(n));
  }
  IgnoreError(sandbox.ForgetProcess(*started), "busy while a child lives");
  return outcome;
}

void SandboxTest::Destroy(Sandbox& sandbox) {
  const Status killed = sandbox.Kill();
  EXPECT_TRUE(killed.has_value()) << killed.error().ToString();
  if (sandbox.init().valid()) {
    EXPECT_TRUE(sandbox.init().WaitEnded(kPatienceMs));
  }
  Status removed = runtime_->Remove(sandbox);
  for (int i = 0; i < 2000 && !removed; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    removed = runtime_->Remove(sandbox);
  }
  EXPECT_TRUE(removed.has_value()) << removed.error().ToString();
}

}  // namespace hutch::runtime
