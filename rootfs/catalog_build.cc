#include "rootfs/catalog_build.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <functional>

#include "base/file.h"
#include "base/text.h"
#include "rootfs/apt_sources.h"
#include "rootfs/child_program.h"
#include "rootfs/layout_writer.h"
#include "rootfs/limits.h"

namespace hutch::rootfs {
namespace {

constexpr char kSourceDateEpoch[] =
    "1704067200";  // every file of a built image is at most this old: same packages, same digest
constexpr char kCreated[] = "2024-01-01T00:00:00Z";
constexpr size_t kTailLines = 12;
constexpr char kEtcApt[] = "/etc/apt";

// Left out of every package: manuals, translations, tests. Licences stay.
constexpr const char* kDpkgOptions[] = {
    "force-unsafe-io",  // the image is synced once
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/lintian/*",
    "path-exclude=/usr/bin/*-lto-dump-*",
};

// The account every process has unless asked otherwise, the places it works in, none of the host's
// package sources, and nothing that tells this build from the next one of the same packages.
constexpr const char* kCustomize[] = {
    // Not left out before: dpkg's scripts compile what a package lists.
    "test ! -d \"$1/usr/lib/python3/dist-packages\" || find \"$1/usr/lib/python3/dist-packages\" "
    "-type d -name tests -prune -exec rm -rf {} +",
    "echo 'sandbox:x:1000:1000::/home/sandbox:/bin/bash' >>\"$1/etc/passwd\"",
    "echo 'sandbox:x:1000:' >>\"$1/etc/group\"",
    "echo 'sandbox:*:19000:0:99999:7:::' >>\"$1/etc/shadow\"",
    "install -d -m 0755 -o 1000 -g 1000 \"$1/home/sandbox\" \"$1/workspace\"",
    "rm -rf \"$1\"/etc/apt/sources.list \"$1\"/etc/apt/sources.list.d/* "
    "\"$1\"/etc/apt/apt.conf.d/99mmdebstrap \"$1\"/etc/hostname \"$1\"/etc/resolv.conf",
    "rm -rf \"$1\"/var/log/*.log \"$1\"/var/log/apt \"$1\"/var/lib/dbus/machine-id "
    "\"$1\"/var/cache/debconf/*-old \"$1\"/var/lib/dpkg/*-old \"$1\"/var/cache/fontconfig/*",
};

// Starts a program that people use on the command line, its output and errors in one pipe.
struct Tool {
  ChildProgram program;
  UniqueFd output;
};
Result<Tool> StartTool(const std::vector<std::string>& args, const std::string& work_dir) {
  ASSIGN_OR_RETURN(Pipe pipe, MakePipe());
  ASSIGN_OR_RETURN(ChildProgram program,
                   ChildProgram::Start(
                       {.path = args[0],
                        .args = args,
                        .env = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                                "LC_ALL=C.UTF-8", "TZ=UTC", "HOME=/root", "TMPDIR=" + work_dir,
                                "PYTHONHASHSEED=0",  // the order of sets in compiled modules
                                std::string("SOURCE_DATE_EPOCH=") + kSourceDateEpoch},
                        .fds = {-1, pipe.write.get(), pipe.write.get()}}));
  return Tool{std::move(program), std::move(pipe.read)};
}

// What apt on this host is told about fetching: proxies, certificates, clocks.
Status WriteAptOptions(const std::string& path, const std::string& work_dir) {
  ASSIGN_OR_RETURN(Tool tool, StartTool({"apt-config", "dump", "Acquire"}, work_dir));
  ASSIGN_OR_RETURN(const std::string dump, ReadAll(tool.output.get(), kMaxDocumentBytes));
  ASSIGN_OR_RETURN(const int code, tool.program.Wait());
  if (code != 0) return Error{.code = Code::kUnavailable, .what = "apt-config failed"};
  std::string options;
  for (const std::string& line : Split(dump, '\n'))
    for (const char* prefix : {"Acquire::http::", "Acquire::https::", "Acquire::Check-"})
      if (line.starts_with(prefix)) options += line + "\n";
  return WriteFileAtomic(path, options, Durability::kMemory);
}

Result<std::vector<std::string>> WriteSources(const CatalogEntry& entry,
                                              const std::string& work_dir) {
  ASSIGN_OR_RETURN(const AptSources sources,
                   HostAptSources(kEtcApt, entry.suite, entry.components));
  const std::pair<std::string, const std::string&> files[] = {
      {work_dir + "/apt.list", sources.lines}, {work_dir + "/apt.sources", sources.stanzas}};
  std::vector<std::string> paths;
  for (const auto& [path, text] : files) {
    if (text.empty()) continue;
    RETURN_IF_ERROR(WriteFileAtomic(path, text, Durability::kMemory));
    paths.push_back(path);
  }
  return paths;
}

// Calls `take` with each line of the output as it comes.
Status ForEachLine(int fd, const std::function<void(const std::string&)>& take) {
  constexpr size_t kMaxLineBytes = 4096;
  std::string line;
  char block[4096];
  while (true) {
    struct pollfd wait = {fd, POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(kBootstrapSilenceSeconds) * 1000);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return Error{.code = Code::kUnavailable, .what = "mmdebstrap is silent"};
    const ssize_t n = ::read(fd, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SysError(errno, "read");
    if (n == 0) return OkStatus();
    for (const char c : std::string_view(block, static_cast<size_t>(n))) {
      if (c != '\n' && c != '\r' && line.size() < kMaxLineBytes) {
        line += c;
        continue;
      }
      if (!line.empty()) take(line);
      line.clear();
    }
  }
}

Status RunMmdebstrap(const CatalogEntry& entry, const std::vector<std::string>& args,
                     const std::string& work_dir, const ProgressFn& progress) {
  auto tool = StartTool(args, work_dir);
  if (!tool && tool.error().code == Code::kNotFound)
    return Error{.code = Code::kUnavailable,
                 .what = "mmdebstrap is not installed",
                 .hint = "apt-get install mmdebstrap"};
  if (!tool) return std::move(tool).error();
  std::deque<std::string> tail;
  BuildProgress reader(entry.name);
  RETURN_IF_ERROR(ForEachLine(tool->output.get(), [&](const std::string& line) {
    tail.emplace_back(line);
    if (tail.size() > kTailLines) tail.pop_front();
    const auto report = reader.Take(line);
    if (report && progress) progress(*report);
  }));
  ASSIGN_OR_RETURN(const int code, tool->program.Wait());
  if (code == 0) return OkStatus();
  return Error{.code = Code::kUnavailable,
               .what = "mmdebstrap failed: " + Join({tail.begin(), tail.end()}, " | "),
               .hint =
                   "are all packages of the entry in the suite, and does apt-get update work "
                   "on this host?"};
}

// The number before a word of a line, "12 newly installed".
std::optional<uint64_t> NumberBefore(std::string_view line, std::string_view word) {
  const size_t end = line.find(word);
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view before = line.substr(0, end);
  const size_t start = before.rfind(' ');
  const auto number = ParseUint(before.substr(start == std::string_view::npos ? 0 : start + 1));
  return number ? std::optional<uint64_t>(*number) : std::nullopt;
}

}  // namespace

std::optional<Progress> BuildProgress::Take(std::string_view line) {
  struct StageRow {
    const char* line;
    const char* stage;
    bool counts;  // goes on with the packages that were counted before
  };
  constexpr StageRow kStages[] = {
      {"I: running apt-get update", "update lists", false},
      {"I: downloading packages", "download essential packages", false},
      {"I: extracting archives", "extract essential packages", false},
      {"I: installing essential packages", "install essential packages", true},
      {"I: installing remaining packages", "download packages", false},
      {"I: cleaning package lists", "clean up", false},
      {"I: creating tarball", "pack", false}};
  for (const StageRow& row : kStages) {
    if (!line.starts_with(row.line)) continue;
    stage_ = row.stage;
    done_ = 0;
    total_ = row.counts ? packages_ : 0;
    return Report();
  }
  const std::string_view stage = stage_;
  if (const auto count = NumberBefore(line, " newly installed,")) {
    packages_ = total_ = *count;
    return std::nullopt;
  }
  const bool configured = line.starts_with("Setting up ");
  if (configured && stage == "download packages") {
    stage_ = "install packages";
    done_ = 0;
  }
  if (!configured && !(line.starts_with("Get:") && stage.starts_with("download")))
    return std::nullopt;
  if (done_ < total_) ++done_;
  return Report();
}

std::vector<std::string> MmdebstrapArgs(const CatalogEntry& entry, const std::string& target,
                                        const std::vector<std::string>& sources,
                                        const std::string& apt_options) {
  std::vector<std::string> args = {"mmdebstrap",
                                   "--verbose",  // what is fetched and set up, for the progress
                                   "--mode=root",
                                   "--variant=apt",
                                   "--format=tar",
                                   "--include=" + Join(entry.packages, ","),
                                   "--components=" + Join(entry.components, ","),
                                   "--aptopt=" + apt_options,
                                   "--aptopt=APT::Install-Recommends \"false\""};
  for (const char* option : kDpkgOptions) args.push_back(std::string("--dpkgopt=") + option);
  for (const char* hook : kCustomize) args.push_back(std::string("--customize-hook=") + hook);
  args.push_back(entry.suite);
  args.push_back(target);
  args.insert(args.end(), sources.begin(), sources.end());
  return args;
}

Result<Image> BuildCatalogImage(Store& store, const std::string& catalog_dir,
                                const std::string& name, const std::string& work_dir,
                                const ProgressFn& progress) {
  ASSIGN_OR_RETURN(const CatalogEntry entry, FindCatalogEntry(catalog_dir, name));
  RETURN_IF_ERROR(MakeDirectories(work_dir, 0700));
  ASSIGN_OR_RETURN(const std::vector<std::string> sources, WriteSources(entry, work_dir));
  const std::string apt_options = work_dir + "/apt.conf", layer = work_dir + "/layer.tar",
                    layout = work_dir + "/layout";
  RETURN_IF_ERROR(WriteAptOptions(apt_options, work_dir));
  RETURN_IF_ERROR(
      RunMmdebstrap(entry, MmdebstrapArgs(entry, layer, sources, apt_options), work_dir, progress));
  RETURN_IF_ERROR(WriteLayout({.name = entry.name,
                               .description = entry.description,
                               .user = entry.user,
                               .working_dir = entry.working_dir,
                               .created = kCreated,
                               .env = entry.env,
                               .cmd = entry.cmd},
                              layer, layout));
  return store.Import(layout, name + ":latest", progress);
}

}  // namespace hutch::rootfs
