#include "daemon/sealed_directories.h"

#include <algorithm>
#include <map>

#include "base/file.h"
#include "base/text.h"
#include "daemon/limits.h"
#include "oci/json.h"
#include "rootfs/lower_layers.h"

namespace hutch::daemon {
namespace {

// Memory and what is made anew for each sandbox: never of an image.
constexpr const char* kNeverSealed[] = {"/dev/shm", "/run"};
// Of the skeleton, rootfs/overlay.h, whatever the image says of them.
constexpr const char* kSkeletonParents[] = {"/home", "/var"};

bool IsBelow(const std::string& path, const std::string& directory) {
  return path.size() > directory.size() && path.starts_with(directory) &&
         path[directory.size()] == '/';
}

template <class List>
bool Lists(const List& list, const std::string& path) {
  return std::any_of(std::begin(list), std::end(list),
                     [&](const auto& one) { return path == one; });
}

// On the shared scratch file system: without a size of its own.
bool IsScratch(const oci::Mount& mount) {
  return mount.type == "tmpfs" &&
         std::none_of(mount.options.begin(), mount.options.end(), [](const std::string& option) {
           return option.starts_with("size=") || option.starts_with("nr_inodes=");
         });
}

using Directories = std::map<std::string, rootfs::ScratchDirectory>;  // by path, parents first

// The directories from the root to `path` as they are shown now. False when one is none.
bool AddChain(const std::string& path, const rootfs::LowerLayers& layers, Directories* all) {
  Directories chain;
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    rootfs::ScratchDirectory directory{part.substr(1), 0755, 0, 0};
    const auto found = layers.Find(part);
    const bool skeleton = Lists(kSkeletonParents, part);
    if (!skeleton && (!found || found->kind != rootfs::FileKind::kDirectory)) return false;
    if (!skeleton) {
      directory.mode = found->mode;
      directory.uid = found->uid;
      directory.gid = found->gid;
    }
    chain.emplace(part, std::move(directory));
    if (slash == std::string::npos) break;
  }
  all->merge(chain);
  return true;
}

const oci::Mount* AboveOf(const std::vector<oci::Mount>& mounts, const std::string& path) {
  const oci::Mount* above = nullptr;
  for (const oci::Mount& mount : mounts)
    if (IsBelow(path, mount.destination) &&
        (above == nullptr || mount.destination.size() > above->destination.size()))
      above = &mount;
  return above;
}

void MakeView(oci::Mount* mount) {
  mount->type = mount->source = "root";
  std::erase_if(mount->options,
                [](const std::string& option) { return option.find('=') != std::string::npos; });
}

Error BadLabel(const std::string& what) {
  return Error{.code = Code::kInvalidArgument,
               .what = std::string("the image's label ") + kSealedLabel + " " + what,
               .field = "image"};
}

}  // namespace

Result<std::set<std::string>> SealedDirectories(const oci::ImageConfig& image) {
  std::set<std::string> directories;
  const auto label = image.labels.find(kSealedLabel);
  if (label == image.labels.end()) return directories;
  const auto list =
      oci::ParseJson(label->second, {.max_bytes = kMaxSealedLabelBytes, .max_depth = 2});
  if (!list.has_value() || !list->is_array()) return BadLabel("is not a list");
  for (const oci::Json& path : *list) {
    if (!path.is_string()) return BadLabel("lists what is no path");
    const std::string text = path.get<std::string>();
    if (text.empty() || text.front() != '/' || text.find('\0') != std::string::npos)
      return BadLabel("lists what is no absolute path");
    directories.insert(text);
  }
  return directories;
}

std::string SealedLabelText(const std::set<std::string>& directories) {
  return oci::PrintJson(
      oci::Json(std::vector<std::string>(directories.begin(), directories.end())));
}

Status UseSealedDirectories(const oci::ImageConfig& image, runtime::CreateRequest& request) {
  ASSIGN_OR_RETURN(const std::set<std::string> sealed, SealedDirectories(image));
  if (sealed.empty()) return OkStatus();
  std::vector<UniqueFd> copies;
  for (const UniqueFd& layer : request.layers) {
    ASSIGN_OR_RETURN(UniqueFd copy, Duplicate(layer.get()));
    copies.push_back(std::move(copy));
  }
  const rootfs::LowerLayers layers(std::move(copies));
  Directories chains;
  std::vector<oci::Mount> mounts;
  for (oci::Mount& mount : request.spec.mounts) {
    const std::string& path = mount.destination;
    const bool asked = IsScratch(mount) && !Lists(kNeverSealed, path) && sealed.contains(path);
    const oci::Mount* above = AboveOf(mounts, path);
    // Mounts come parents first. One in a view that the image has is in the view.
    if (above != nullptr && above->type == "root" && IsScratch(mount)) {
      const auto found = layers.Find(path);
      if (found && found->kind == rootfs::FileKind::kDirectory) continue;
    } else if (asked && above == nullptr && AddChain(path, layers, &chains)) {
      MakeView(&mount);
    }
    mounts.push_back(std::move(mount));
  }
  request.spec.mounts = std::move(mounts);
  for (auto& [path, directory] : chains) request.upper_directories.push_back(std::move(directory));
  return OkStatus();
}

}  // namespace hutch::daemon
