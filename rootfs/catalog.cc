#include "rootfs/catalog.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>

#include "base/file.h"
#include "base/text.h"
#include "oci/json.h"
#include "rootfs/child_program.h"
#include "rootfs/layout_writer.h"
#include "rootfs/limits.h"
#include "rootfs/store.h"

namespace hutch::rootfs {
namespace {

constexpr char kSourceDateEpoch[] =
    "1704067200";  // every file of a built image is at most this old: same packages, same digest
constexpr char kCreated[] = "2024-01-01T00:00:00Z";
constexpr size_t kTailLines = 12;
constexpr char kAptSourcesDir[] = "/etc/apt/sources.list.d";
constexpr char kAptSourcesList[] = "/etc/apt/sources.list";
constexpr std::array<const char*, 8> kStages = {"running apt-get update",
                                                "downloading packages",
                                                "extracting archives",
                                                "installing essential packages",
                                                "installing remaining packages",
                                                "cleaning package lists",
                                                "creating tarball",
                                                "done"};

// The account every process has unless asked otherwise, the places it works in, and none of the
// host's package sources.
constexpr const char* kCustomize[] = {
    "echo 'sandbox:x:1000:1000::/home/sandbox:/bin/bash' >>\"$1/etc/passwd\"",
    "echo 'sandbox:x:1000:' >>\"$1/etc/group\"",
    "echo 'sandbox:*:19000:0:99999:7:::' >>\"$1/etc/shadow\"",
    "mkdir -p \"$1/home/sandbox\" \"$1/workspace\" && chown 1000:1000 \"$1/home/sandbox\" "
    "\"$1/workspace\"",
    "rm -rf \"$1\"/etc/apt/sources.list \"$1\"/etc/apt/sources.list.d/* "
    "\"$1\"/etc/apt/apt.conf.d/99mmdebstrap "
    "\"$1\"/etc/hostname \"$1\"/etc/resolv.conf \"$1\"/var/log/*.log \"$1\"/var/log/apt",
};

bool IsPackageName(const std::string& name) {
  return name.size() >= 2 &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789+-.") == std::string::npos &&
         name[0] != '-';
}

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
                                "LC_ALL=C.UTF-8", "HOME=/root", "TMPDIR=" + work_dir,
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

Result<std::vector<std::string>> HostSources() {
  std::vector<std::string> sources;
  if (PathExists(kAptSourcesList)) sources.emplace_back(kAptSourcesList);
  if (const auto names = ListDirectory(kAptSourcesDir))
    for (const std::string& name : *names)
      if (name.ends_with(".sources") || name.ends_with(".list"))
        sources.push_back(std::string(kAptSourcesDir) + "/" + name);
  if (sources.empty())
    return Error{.code = Code::kUnavailable,
                 .what = "this host has no apt sources in /etc/apt",
                 .hint = "catalog images are built from the host's own Debian mirror"};
  return sources;
}

void TellStage(const std::string& line, const std::string& name, const ProgressFn& progress) {
  if (!progress || !line.starts_with("I: ")) return;
  for (size_t i = 0; i < kStages.size(); ++i)
    if (line.compare(3, std::string_view(kStages[i]).size(), kStages[i]) == 0)
      progress({"bootstrap", name + ": " + kStages[i], i + 1, kStages.size()});
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
  RETURN_IF_ERROR(ForEachLine(tool->output.get(), [&](const std::string& line) {
    tail.emplace_back(line);
    if (tail.size() > kTailLines) tail.pop_front();
    TellStage(line, entry.name, progress);
  }));
  ASSIGN_OR_RETURN(const int code, tool->program.Wait());
  if (code == 0) return OkStatus();
  return Error{.code = Code::kUnavailable,
               .what = "mmdebstrap failed: " + Join({tail.begin(), tail.end()}, " | "),
               .hint = "does apt-get update work on this host?"};
}

}  // namespace

std::vector<std::string> CatalogNames() {
  std::vector<std::string> names;
  for (const CatalogText& text : CatalogTexts()) names.emplace_back(text.name);
  return names;
}

Result<CatalogEntry> ParseCatalogEntry(std::string_view name, std::string_view json) {
  ASSIGN_OR_RETURN(const oci::Json document, oci::ParseJson(json));
  CatalogEntry entry{.name = std::string(name),
                     .description = {},
                     .suite = {},
                     .user = {},
                     .working_dir = {},
                     .packages = {},
                     .env = {},
                     .cmd = {}};
  RETURN_IF_ERROR(oci::ObjectReader(document, "")
                      .String("description", &entry.description)
                      .String("suite", &entry.suite)
                      .Strings("packages", &entry.packages)
                      .Strings("env", &entry.env)
                      .Strings("cmd", &entry.cmd)
                      .String("user", &entry.user)
                      .String("working_dir", &entry.working_dir)
                      .Done(oci::ObjectReader::Unknown::kRefuse));
  for (const std::string& package : entry.packages)
    if (!IsPackageName(package))
      return Error{.code = Code::kInvalidArgument,
                   .what = "not a package name: \"" + package + "\"",
                   .field = "packages"};
  if (!IsPackageName(entry.suite))
    return Error{.code = Code::kInvalidArgument, .what = "suite is missing", .field = "suite"};
  return entry;
}

std::vector<std::string> MmdebstrapArgs(const CatalogEntry& entry, const std::string& target,
                                        const std::vector<std::string>& sources,
                                        const std::string& apt_options) {
  std::vector<std::string> args = {"mmdebstrap",
                                   "--mode=root",
                                   "--variant=apt",
                                   "--format=tar",
                                   "--include=" + Join(entry.packages, ","),
                                   "--aptopt=" + apt_options,
                                   "--aptopt=APT::Install-Recommends \"false\"",
                                   "--dpkgopt=force-unsafe-io",  // the image is synced once
                                   "--dpkgopt=path-exclude=/usr/share/man/*",
                                   "--dpkgopt=path-exclude=/usr/share/doc/*",
                                   "--dpkgopt=path-include=/usr/share/doc/*/copyright",
                                   "--dpkgopt=path-exclude=/usr/share/locale/*"};
  for (const char* hook : kCustomize) args.push_back(std::string("--customize-hook=") + hook);
  args.push_back(entry.suite);
  args.push_back(target);
  args.insert(args.end(), sources.begin(), sources.end());
  return args;
}

Result<Image> BuildCatalogImage(Store& store, const std::string& name, const std::string& work_dir,
                                const ProgressFn& progress) {
  const auto& texts = CatalogTexts();
  const auto text = std::find_if(texts.begin(), texts.end(),
                                 [&](const CatalogText& t) { return t.name == name; });
  if (text == texts.end())
    return Error{
        .code = Code::kNotFound,
        .what = "no catalog image \"" + name + "\"; there are: " + Join(CatalogNames(), ", "),
        .field = "name"};
  ASSIGN_OR_RETURN(const CatalogEntry entry, ParseCatalogEntry(text->name, text->json));
  RETURN_IF_ERROR(MakeDirectories(work_dir, 0700));
  ASSIGN_OR_RETURN(const std::vector<std::string> sources, HostSources());
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
