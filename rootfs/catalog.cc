#include "rootfs/catalog.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <memory>

#include "base/file.h"
#include "base/text.h"
#include "oci/json.h"
#include "rootfs/image_source.h"

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
#if defined(__x86_64__)
constexpr char kArchitecture[] = "amd64";
#elif defined(__aarch64__)
constexpr char kArchitecture[] = "arm64";
#endif

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

// What apt on this host is told about fetching: proxies, certificates, clocks.
Status WriteAptOptions(const std::string& path) {
  std::unique_ptr<FILE, int (*)(FILE*)> dump(::popen("apt-config dump Acquire 2>/dev/null", "re"),
                                             ::pclose);
  if (!dump) return SysError(errno, "run apt-config");
  std::string options;
  char line[4096];
  while (std::fgets(line, sizeof line, dump.get()) != nullptr) {
    const std::string_view text(line);
    for (const char* prefix : {"Acquire::http::", "Acquire::https::", "Acquire::Check-"})
      if (text.starts_with(prefix)) options += text;
  }
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

struct Child {
  pid_t pid;
  UniqueFd output;
};

Result<Child> StartMmdebstrap(const std::vector<std::string>& args, const std::string& work_dir) {
  ASSIGN_OR_RETURN(Pipe pipe, MakePipe());
  posix_spawn_file_actions_t actions;
  if (::posix_spawn_file_actions_init(&actions) != 0)
    return Error{.code = Code::kInternal, .what = "posix_spawn setup"};
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, pipe.write.get(), 1);
  ::posix_spawn_file_actions_adddup2(&actions, pipe.write.get(), 2);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  std::vector<std::string> words = args;
  std::vector<std::string> env = {
      "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8",
      "HOME=/root", "TMPDIR=" + work_dir, std::string("SOURCE_DATE_EPOCH=") + kSourceDateEpoch};
  std::vector<char*> argv, envp;
  for (std::string& word : words) argv.push_back(word.data());
  for (std::string& entry : env) envp.push_back(entry.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  pid_t pid = 0;
  const int err = ::posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), envp.data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (err == ENOENT)
    return Error{.code = Code::kUnavailable,
                 .what = "mmdebstrap is not installed",
                 .hint = "apt-get install mmdebstrap"};
  if (err != 0) return SysError(err, "start mmdebstrap");
  return Child{pid, std::move(pipe.read)};
}

void TellStage(const std::string& line, const std::string& name, const ProgressFn& progress) {
  if (!progress || !line.starts_with("I: ")) return;
  for (size_t i = 0; i < kStages.size(); ++i)
    if (line.compare(3, std::string_view(kStages[i]).size(), kStages[i]) == 0)
      progress({"bootstrap", name + ": " + kStages[i], i + 1, kStages.size()});
}

Status RunMmdebstrap(const CatalogEntry& entry, const std::vector<std::string>& args,
                     const std::string& work_dir, const ProgressFn& progress) {
  ASSIGN_OR_RETURN(const Child child, StartMmdebstrap(args, work_dir));
  std::deque<std::string> tail;
  std::unique_ptr<FILE, int (*)(FILE*)> output(::fdopen(::dup(child.output.get()), "r"), ::fclose);
  char buffer[4096];
  while (output && std::fgets(buffer, sizeof buffer, output.get()) != nullptr) {
    tail.emplace_back(Trim(buffer));
    if (tail.size() > kTailLines) tail.pop_front();
    TellStage(tail.back(), entry.name, progress);
  }
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) continue;
  if (status == 0) return OkStatus();
  return Error{.code = Code::kUnavailable,
               .what = "mmdebstrap failed: " + Join({tail.begin(), tail.end()}, " | "),
               .hint = "does apt-get update work on this host?"};
}

Result<std::string> HashFile(const std::string& path, uint64_t* size) {
  ASSIGN_OR_RETURN(const UniqueFd fd, Open(path, O_RDONLY));
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  CHECK(context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1);
  std::vector<char> buffer(1 << 20);
  for (ssize_t n; (n = ::read(fd.get(), buffer.data(), buffer.size())) != 0;) {
    if (n < 0) return SysError(errno, "read " + path);
    *size += static_cast<uint64_t>(n);
    EVP_DigestUpdate(context.get(), buffer.data(), static_cast<size_t>(n));
  }
  unsigned char out[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  EVP_DigestFinal_ex(context.get(), out, &length);
  return "sha256:" + HexEncode({reinterpret_cast<const char*>(out), length});
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

Status WriteLayout(const CatalogEntry& entry, const std::string& layer_path,
                   const std::string& layout_dir) {
  const std::string blobs = layout_dir + "/blobs/sha256";
  RETURN_IF_ERROR(MakeDirectories(blobs, 0700));
  uint64_t layer_size = 0;
  ASSIGN_OR_RETURN(const std::string diff_id, HashFile(layer_path, &layer_size));
  const auto blob_path = [&](const std::string& digest) { return blobs + "/" + digest.substr(7); };
  if (::rename(layer_path.c_str(), blob_path(diff_id).c_str()) != 0)
    return SysError(errno, "rename " + layer_path);
  const auto put = [&](const oci::Json& json, const char* type, oci::Json* descriptor) {
    const std::string bytes = oci::PrintJson(json);
    *descriptor = {{"mediaType", type}, {"digest", Sha256(bytes)}, {"size", bytes.size()}};
    return WriteFileAtomic(blob_path(Sha256(bytes)), bytes, Durability::kMemory);
  };
  oci::Json config, manifest;
  RETURN_IF_ERROR(put({{"created", kCreated},
                       {"architecture", kArchitecture},
                       {"os", "linux"},
                       {"config",
                        {{"Env", entry.env},
                         {"Cmd", entry.cmd},
                         {"User", entry.user},
                         {"WorkingDir", entry.working_dir},
                         {"Labels",
                          {{"org.opencontainers.image.title", entry.name},
                           {"org.opencontainers.image.description", entry.description}}}}},
                       {"rootfs", {{"type", "layers"}, {"diff_ids", {diff_id}}}}},
                      "application/vnd.oci.image.config.v1+json", &config));
  const oci::Json layer = {{"mediaType", "application/vnd.oci.image.layer.v1.tar"},
                           {"digest", diff_id},
                           {"size", layer_size}};
  RETURN_IF_ERROR(put({{"schemaVersion", 2},
                       {"mediaType", "application/vnd.oci.image.manifest.v1+json"},
                       {"config", config},
                       {"layers", oci::Json::array({layer})}},
                      "application/vnd.oci.image.manifest.v1+json", &manifest));
  manifest["annotations"] = {{"org.opencontainers.image.ref.name", entry.name}};
  RETURN_IF_ERROR(WriteFileAtomic(
      layout_dir + "/index.json",
      oci::PrintJson({{"schemaVersion", 2}, {"manifests", oci::Json::array({manifest})}}),
      Durability::kMemory));
  return WriteFileAtomic(layout_dir + "/oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}",
                         Durability::kMemory);
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
  RETURN_IF_ERROR(WriteAptOptions(apt_options));
  RETURN_IF_ERROR(
      RunMmdebstrap(entry, MmdebstrapArgs(entry, layer, sources, apt_options), work_dir, progress));
  RETURN_IF_ERROR(WriteLayout(entry, layer, layout));
  return store.Import(layout, name + ":latest", progress);
}

}  // namespace hutch::rootfs
