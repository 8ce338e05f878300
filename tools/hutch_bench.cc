// hutch-bench: start latency side by side with bwrap, runc, crun, podman and plain fork+exec.
#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "base/file.h"
#include "base/text.h"
#include "tools/bench/copies.h"
#include "tools/bench/measure.h"
#include "tools/bench/report.h"
#include "tools/bench/rootfs_maker.h"
#include "tools/client.h"
#include "tools/table.h"

namespace hutch::tools {
namespace {

struct BenchOptions {
  std::string socket = kDefaultSocket, pools_off_socket, rootfs, image_layout, image, svg;
  std::string work_dir = "/var/tmp", cases, only, copy_size = "1GiB";
  Plan plan;
  bool json = false, with_docker = false;
};

constexpr const char* kExample =
    "Example:\n  sudo hutch-bench --image-layout ./python-layout --runs 50 --svg bench.svg";

// Whether to go on; *exit_code otherwise. CLI11 reports by exceptions; they end here.
bool ParseOptions(int argc, char** argv, BenchOptions* o, int* exit_code) {
  CLI::App app("hutch-bench: how long a sandbox takes, beside its peers, in one run",
               "hutch-bench");
  app.footer(kExample);
  app.set_version_flag("--version", "hutch-bench " HUTCH_VERSION);
  app.add_option("--socket", o->socket, "The daemon's socket")->envname("HUTCH_SOCKET");
  app.add_option("--socket2,--pools-off-socket", o->pools_off_socket,
                 "Socket of a second hutchd, started with --pools=off");
  app.add_option("--rootfs", o->rootfs, "Root file system for all (default: of static busybox)");
  app.add_option("--image-layout", o->image_layout, "OCI layout to unpack with umoci instead");
  app.add_option("--image", o->image,
                 "Image in hutch's store with the same files (default: imported for the run)");
  app.add_option("--runs", o->plan.runs, "Measured runs of each contestant")->capture_default_str();
  app.add_option("--warmup", o->plan.warmup, "Runs before them")->capture_default_str();
  app.add_option("--burst", o->plan.burst, "Sandboxes at once")->capture_default_str();
  app.add_option("--burst-runs", o->plan.burst_runs, "Rounds of bursts")->capture_default_str();
  app.add_option("--pause-ms", o->plan.pause_ms, "Rest before each run")->capture_default_str();
  app.add_option(
      "--cases", o->cases,
      "Only these, by comma: true python exec burst create, and copy, which is not among the "
      "default ones");
  app.add_option("--only", o->only, "Only these contestants, by comma");
  app.add_flag("--docker", o->with_docker, "Start a private dockerd for the run");
  app.add_option("--copy-size", o->copy_size, "Of the large file that is copied")
      ->capture_default_str();
  app.add_option("--copy-files", o->plan.copy_files, "Small files that are copied")
      ->capture_default_str();
  app.add_option("--copy-runs", o->plan.copy_runs, "Rounds of copies")->capture_default_str();
  app.add_option("--work-dir", o->work_dir, "Where a temporary directory is made")
      ->capture_default_str();
  app.add_flag("--json", o->json, "Print JSON with every sample");
  app.add_option("--svg", o->svg, "Write box plots to this file");
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::Error& error) {
    const int code = app.exit(error);
    *exit_code = code == 0 ? 0 : 2;
    return false;
  }
}

std::vector<std::string> Words(const std::string& list) {
  return list.empty() ? std::vector<std::string>() : Split(list, ',');
}

std::string CpuModel() {
  const auto text = ReadFile("/proc/cpuinfo", size_t{1} << 20);
  for (const std::string& line : Split(text ? *text : "", '\n'))
    if (line.starts_with("model name"))
      return std::string(Trim(std::string_view(line).substr(line.find(':') + 1)));
  return "unknown CPU";
}

std::string Describe(const std::string& socket) {
  Client client(socket);
  const auto info = client.Get("/v1/info");
  return info ? DescribeDaemon(*info) : "not measured: " + info.error().ToString();
}

// Takes the image out of the store again.
class ImportedImage {
 public:
  static constexpr const char* kReference = "hutch-bench:latest";
  ImportedImage() = default;
  ImportedImage(const ImportedImage&) = delete;
  ImportedImage& operator=(const ImportedImage&) = delete;
  ~ImportedImage() {
    for (const std::string& socket : sockets_)
      IgnoreError(Client(socket).Delete(std::string("/v1/images/") + kReference), "best effort");
  }
  Status Import(const std::string& socket, const std::string& layout) {
    Client client(socket);
    RETURN_IF_ERROR(
        client.Post("/v1/images/import", {{"path", layout}, {"reference", kReference}}));
    sockets_.push_back(socket);
    return OkStatus();
  }

 private:
  std::vector<std::string> sockets_;
};

Result<std::string> FullPath(const std::string& path) {
  char* full = ::realpath(path.c_str(), nullptr);
  if (full == nullptr) return SysError(errno, path);
  std::string copy = full;
  std::free(full);
  return copy;
}

Result<std::string> MakeRootfs(const BenchOptions& options, const std::string& work) {
  if (!options.rootfs.empty()) return FullPath(options.rootfs);
  if (!options.image_layout.empty()) return UnpackLayout(options.image_layout, work);
  return MakeBusyboxRootfs(work);
}

// hutch gets the same files as an image. An error is a reason to leave hutch out, not to end.
Status ProvideImage(const BenchOptions& options, const std::string& rootfs, const std::string& work,
                    ImportedImage* imported) {
  if (!options.image.empty()) return OkStatus();
  RETURN_IF_ERROR(Client(options.socket).Get("/v1/health"));
  std::string layout;
  if (options.rootfs.empty() && !options.image_layout.empty()) {
    ASSIGN_OR_RETURN(layout, FullPath(options.image_layout));
  } else {
    ASSIGN_OR_RETURN(layout, MakeLayout(rootfs, work));
  }
  RETURN_IF_ERROR(imported->Import(options.socket, layout));
  if (options.pools_off_socket.empty()) return OkStatus();
  return imported->Import(options.pools_off_socket, layout);
}

void Say(const std::string& text) {
  IgnoreError(WriteAll(STDERR_FILENO, text + "\n"), "only progress");
}

Surroundings Describe(const BenchOptions& options, const std::string& rootfs) {
  utsname name = {};
  ::uname(&name);
  Surroundings host;
  host.kernel = std::string("Linux ") + name.release;
  host.cpu = CpuModel();
  host.cpus = std::thread::hardware_concurrency();
  if (::getloadavg(&host.load, 1) != 1) host.load = 0;
  host.date = FormatRfc3339(std::chrono::system_clock::now()).substr(0, 10);
  host.rootfs = !options.rootfs.empty()         ? rootfs
                : !options.image_layout.empty() ? options.image_layout
                                                : "static busybox";
  host.hutch = Describe(options.socket);
  if (!options.pools_off_socket.empty()) host.pools_off = Describe(options.pools_off_socket);
  return host;
}

bool WantsCopies(const BenchOptions& options) {
  const std::vector<std::string> wanted = Words(options.cases);
  return std::find(wanted.begin(), wanted.end(), "copy") != wanted.end();
}

// Beside this program, else in PATH.
std::string ProgramBeside(const std::string& name) {
  char self[4096];
  const ssize_t size = ::readlink("/proc/self/exe", self, sizeof self);
  const std::string path(self, size > 0 ? static_cast<size_t>(size) : 0);
  const std::string beside = path.substr(0, path.rfind('/') + 1) + name;
  return PathExists(beside) ? beside : name;
}

int PidOf(const std::string& socket) {
  const auto info = Client(socket).Get("/v1/info");
  uint64_t pid = 0;
  if (info) oci::ObjectReader(*info, "").Uint("pid", &pid, 1, INT32_MAX);
  return static_cast<int>(pid);
}

// The copies, and what they did to the daemon's memory.
Result<std::vector<CaseResult>> MeasureCopiesOf(const BenchOptions& options, const Setup& setup,
                                                std::vector<Entrant>* entrants,
                                                std::optional<DaemonMemory>* memory) {
  Say("measuring: copies");
  const int pid = PidOf(options.socket);
  const uint64_t before = MemoryOf(pid, "VmRSS");
  if (pid > 0) IgnoreError(ResetPeak(pid), "then the peak is that of its whole life");
  ASSIGN_OR_RETURN(std::vector<CaseResult> results, MeasureCopies(setup, options.plan, entrants));
  if (pid > 0) *memory = DaemonMemory{before, MemoryOf(pid, "VmRSS"), MemoryOf(pid, "VmHWM")};
  return results;
}

Result<std::vector<CaseResult>> MeasureAll(const BenchOptions& options, const Setup& setup,
                                           std::optional<DaemonMemory>* memory) {
  std::vector<Entrant> entrants = PrepareEntrants(setup, options.plan, Words(options.only));
  const std::vector<std::string> wanted = Words(options.cases);
  std::vector<CaseResult> results;
  for (const CaseRow& row : AllCases()) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), row.name) == wanted.end())
      continue;
    if (row.name == std::string("python") && !PathExists(setup.rootfs + row.argv[0])) {
      Say("no python3 in the root file system: that case is left out");
      continue;
    }
    Say(std::string("measuring: ") + row.title);
    results.push_back(Measure(row, options.plan, &entrants));
  }
  if (!WantsCopies(options)) return results;
  ASSIGN_OR_RETURN(const std::vector<CaseResult> copies,
                   MeasureCopiesOf(options, setup, &entrants, memory));
  results.insert(results.end(), copies.begin(), copies.end());
  return results;
}

Result<int> Bench(BenchOptions options) {
  if (::geteuid() != 0)
    return Error{.code = Code::kForbidden,
                 .what = "hutch-bench needs root: runc, crun and the root file system do"};
  if (options.plan.runs == 0 || options.plan.burst == 0 || options.plan.burst > 1000)
    return Error{.code = Code::kInvalidArgument,
                 .what = "--runs must be at least 1 and --burst 1 to 1000"};
  ASSIGN_OR_RETURN(options.plan.copy_bytes, ParseSize(options.copy_size));
  ASSIGN_OR_RETURN(const WorkDirectory work, WorkDirectory::Make(options.work_dir));
  ASSIGN_OR_RETURN(const std::string rootfs, MakeRootfs(options, work.path()));
  ImportedImage imported;
  if (const Status ready = ProvideImage(options, rootfs, work.path(), &imported); !ready)
    Say("hutch is left out: " + ready.error().ToString());
  const Setup setup = {.rootfs = rootfs,
                       .work = work.path(),
                       .image = options.image.empty() ? ImportedImage::kReference : options.image,
                       .socket = options.socket,
                       .pools_off_socket = options.pools_off_socket,
                       .hutch_program = ProgramBeside("hutch"),
                       .oci_program = ProgramBeside("hutch-oci"),
                       .copy_bytes = options.plan.copy_bytes,
                       .with_docker = options.with_docker};
  Surroundings host = Describe(options, rootfs);
  ASSIGN_OR_RETURN(const std::vector<CaseResult> results, MeasureAll(options, setup, &host.memory));
  const std::string text = options.json
                               ? RenderJson(host, options.plan, results).dump(2) + "\n"
                               : RenderText(host, options.plan, results, ColoursFor(STDOUT_FILENO));
  RETURN_IF_ERROR(WriteAll(STDOUT_FILENO, text));
  if (options.svg.empty()) return 0;
  ASSIGN_OR_RETURN(const UniqueFd file, Open(options.svg, O_WRONLY | O_CREAT | O_TRUNC, 0644));
  RETURN_IF_ERROR(WriteAll(file.get(), RenderSvg(host, results)));
  return 0;
}

}  // namespace
}  // namespace hutch::tools

int main(int argc, char** argv) {
  using namespace hutch;
  ::signal(SIGPIPE, SIG_IGN);
  tools::BenchOptions options;
  int exit_code = 0;
  if (!tools::ParseOptions(argc, argv, &options, &exit_code)) return exit_code;
  const Result<int> done = tools::Bench(options);
  if (done) return *done;
  tools::Say("hutch-bench: " + done.error().ToString());
  return 1;
}
