#include "tools/package_hosts.h"

#include <fcntl.h>

#include <algorithm>
#include <set>

#include "base/file.h"
#include "base/rooted_path.h"
#include "tools/package_config.h"

namespace hutch::tools {
namespace {

constexpr size_t kMaxConfigBytes = 1u << 20;
constexpr size_t kMaxLists = 64;

class Scan {
 public:
  Scan(int root_fd, std::string home) : root_fd_(root_fd), home_(std::move(home)) {}

  void Apt() {
    std::vector<std::string> lists;
    const auto take = [&](const std::string& path, ConfigUrls (*read)(std::string_view)) {
      const ConfigUrls found = Take(path, read);
      lists.insert(lists.end(), found.lists.begin(), found.lists.end());
    };
    take("/etc/apt/sources.list", ReadAptList);
    for (const std::string& path : Below("/etc/apt/sources.list.d", ".list"))
      take(path, ReadAptList);
    for (const std::string& path : Below("/etc/apt/sources.list.d", ".sources"))
      take(path, ReadAptSources);
    take("/etc/apt/apt.conf", ReadAptConf);
    for (const std::string& path : Below("/etc/apt/apt.conf.d", "")) take(path, ReadAptConf);
    lists.resize(std::min(lists.size(), kMaxLists));
    for (const std::string& path : lists) Take(path, ReadAptMirrors);
  }
  void Npm() {
    for (const std::string& path : {std::string("/etc/npmrc"), std::string("/usr/etc/npmrc"),
                                    std::string("/usr/local/etc/npmrc"), home_ + "/.npmrc"})
      Take(path, ReadNpmrc);
  }
  void Pip() {
    for (const std::string& path :
         {std::string("/etc/pip.conf"), std::string("/etc/xdg/pip/pip.conf"),
          home_ + "/.pip/pip.conf", home_ + "/.config/pip/pip.conf"})
      Take(path, ReadPipConf);
  }
  void Cargo() {
    for (const char* name : {"/.cargo/config.toml", "/.cargo/config"})
      Take(home_ + name, ReadCargoConfig);
  }
  std::vector<PackageHost> TakeFound() { return std::move(found_); }

 private:
  void Add(const std::string& url, const std::string& where) {
    const std::optional<std::string> rule = RuleOfUrl(url);
    if (rule && known_.insert(*rule).second) found_.push_back({*rule, where});
  }
  ConfigUrls Take(const std::string& path, ConfigUrls (*read)(std::string_view)) {
    const auto text = Read(path);
    if (!text.has_value()) return {};
    ConfigUrls found = read(*text);
    for (const std::string& url : found.urls) Add(url, path);
    return found;
  }
  Result<std::string> Read(const std::string& path) const {
    ASSIGN_OR_RETURN(const RootedPath rooted, RootedPath::Make(root_fd_, path));
    ASSIGN_OR_RETURN(const UniqueFd file, rooted.OpenRegularFile());
    return ReadAll(file.get(), kMaxConfigBytes);
  }
  std::vector<std::string> Below(const std::string& directory, const std::string& ending) const {
    std::vector<std::string> paths;
    const auto rooted = RootedPath::Make(root_fd_, directory);
    if (!rooted.has_value()) return paths;
    const auto fd = rooted->Open(O_RDONLY | O_DIRECTORY);
    if (!fd.has_value()) return paths;
    const auto names = ListDirectory("/proc/self/fd/" + std::to_string(fd->get()) + "/.");
    if (!names.has_value()) return paths;
    for (const std::string& name : *names)
      if (name.ends_with(ending)) paths.push_back(directory + "/" + name);
    return paths;
  }

  int root_fd_;
  std::string home_;
  std::set<std::string> known_;
  std::vector<PackageHost> found_;
};

}  // namespace

Result<std::vector<PackageHost>> FindPackageHosts(const std::string& root,
                                                  const std::string& home) {
  ASSIGN_OR_RETURN(const UniqueFd root_fd, Open(root, O_PATH | O_DIRECTORY));
  Scan scan(root_fd.get(), home);
  scan.Apt();
  scan.Npm();
  scan.Pip();
  scan.Cargo();
  return scan.TakeFound();
}

}  // namespace hutch::tools
