#include "daemon/writable_directories.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "base/text.h"
#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

// Real directories in every sandbox whatever its image has there: the skeleton's, rootfs/overlay.h.
constexpr const char* kAlwaysThere[] = {"/etc", "/home", "/var"};

Error InTheWay(const std::string& path, const std::string& what) {
  return Error{.code = Code::kInvalidArgument,
               .what = "cannot make " + path + " writable: " + what,
               .field = "image"};
}

bool IsBelow(const std::string& path, const std::string& directory) {
  return path.size() > directory.size() && path.starts_with(directory) &&
         path[directory.size()] == '/';
}

bool IsAlwaysThere(const std::string& path) {
  return std::any_of(std::begin(kAlwaysThere), std::end(kAlwaysThere),
                     [&](const char* one) { return path == one; });
}

enum class Place { kMounted, kBelowMount, kHidesMount, kFree };

Place PlaceOf(const std::string& path, const std::vector<oci::Mount>& mounts) {
  Place place = Place::kFree;
  for (const oci::Mount& mount : mounts) {
    if (mount.destination == path) return Place::kMounted;
    if (IsBelow(mount.destination, path)) return Place::kHidesMount;
    if (IsBelow(path, mount.destination)) place = Place::kBelowMount;
  }
  return place;
}

std::string Octal(uint32_t mode) {
  char text[16];
  std::snprintf(text, sizeof text, "%o", mode);
  return text;
}

// Takes over what the image has at directory.path. False where it has nothing.
Result<bool> TakeOver(const rootfs::LowerLayers& image, LayerDirectory* directory) {
  const std::optional<rootfs::LowerEntry> found = image.Find(directory->path);
  if (!found.has_value()) return IsAlwaysThere(directory->path);
  const rootfs::LowerEntry& entry = *found;
  if (entry.kind == rootfs::FileKind::kDirectory) {
    directory->mode = entry.mode;
    directory->uid = entry.uid;
    directory->gid = entry.gid;
  } else if (!IsAlwaysThere(directory->path)) {
    return InTheWay(directory->path,
                    std::string("the image has a ") + rootfs::FileKindName(entry.kind) + " there");
  }
  return true;
}

// The directories from the root to `path`, the missing ones as they are to be made; nothing when
// none is missing.
Result<std::vector<LayerDirectory>> Missing(const std::string& path,
                                            const rootfs::LowerLayers& image) {
  std::vector<LayerDirectory> chain;
  bool there = true;
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    LayerDirectory directory{.path = path.substr(0, slash)};
    if (there) {
      ASSIGN_OR_RETURN(there, TakeOver(image, &directory));
    }
    chain.push_back(std::move(directory));
    if (slash == std::string::npos) break;
  }
  if (there) chain.clear();
  return chain;
}

// In the place of what is mounted there, if anything is.
void PutVolume(const WritableDirectory& directory, oci::Spec& spec) {
  const oci::User& user = spec.process.user;
  oci::Mount mount{
      .destination = directory.path,
      .type = "volume",
      .source = std::to_string(directory.volume),
      .options = {"uid=" + std::to_string(user.uid), "gid=" + std::to_string(user.gid)}};
  const auto there =
      std::find_if(spec.mounts.begin(), spec.mounts.end(),
                   [&](const oci::Mount& one) { return one.destination == directory.path; });
  if (there == spec.mounts.end())
    spec.mounts.push_back(std::move(mount));
  else
    *there = std::move(mount);
}

}  // namespace

void AddVolumeTargets(const std::vector<VolumeFields>& volumes,
                      std::vector<WritableDirectory>* directories) {
  for (size_t i = 0; i < volumes.size(); ++i) {
    std::erase_if(*directories, [&](const WritableDirectory& one) {
      return one.path == volumes[i].target || IsBelow(one.path, volumes[i].target);
    });
    directories->push_back({.path = volumes[i].target, .volume = static_cast<int>(i)});
  }
  std::stable_sort(directories->begin(), directories->end(),
                   [](const auto& a, const auto& b) { return a.path < b.path; });
}

Result<std::vector<WritableDirectory>> CollectDirectories(
    const oci::ImageConfig& image, const std::vector<WritableDirectory>& asked) {
  std::vector<WritableDirectory> all;
  const auto add = [&](WritableDirectory directory) {
    const bool there = std::any_of(all.begin(), all.end(),
                                   [&](const auto& one) { return one.path == directory.path; });
    if (!there) all.push_back(std::move(directory));
  };
  for (const std::string& volume : image.volumes) {
    if (all.size() > kMaxWritableDirectories) break;
    Result<std::string> path = NormalDirectory(volume, "image");
    if (!path.has_value()) {
      Error error = std::move(path).error();
      error.what = "a volume of the image " + error.what;
      return error;
    }
    add({.path = *std::move(path), .users = true});
  }
  for (const WritableDirectory& directory : asked) add(directory);
  if (all.size() > kMaxWritableDirectories)
    return Error{.code = Code::kLimit,
                 .what = "more than " + std::to_string(kMaxWritableDirectories) +
                         " volumes of the image and mounts of the template",
                 .field = "image"};
  // Parents before what is below them.
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.path < b.path; });
  return all;
}

Result<std::vector<LayerDirectory>> PlanDirectories(
    const std::vector<WritableDirectory>& directories, const rootfs::LowerLayers& image,
    oci::Spec& spec) {
  std::map<std::string, LayerDirectory> layer;  // sorted: parents first
  for (const WritableDirectory& directory : directories) {
    const Place place = PlaceOf(directory.path, spec.mounts);
    const bool is_volume = directory.volume >= 0;
    if (place == Place::kMounted && !is_volume) continue;
    const auto refused = [&](Error error) {
      if (is_volume) error.field = "volumes";
      return error;
    };
    if (place == Place::kHidesMount)
      return refused(InTheWay(directory.path, "it would hide what is mounted below it"));
    std::vector<LayerDirectory> missing;
    if (place == Place::kFree) {
      auto lacks = Missing(directory.path, image);
      if (!lacks.has_value()) return refused(std::move(lacks).error());
      missing = *std::move(lacks);
      if (directory.only_if_missing && missing.empty()) continue;
    }
    for (LayerDirectory& one : missing) layer.emplace(one.path, std::move(one));
    if (is_volume) {
      PutVolume(directory, spec);
      continue;
    }
    oci::Mount mount{.destination = directory.path,
                     .type = "tmpfs",
                     .source = "tmpfs",
                     .options = {"nosuid", "nodev", "mode=" + Octal(directory.mode)}};
    const oci::User& user = spec.process.user;
    if (directory.users) {
      mount.options.push_back("uid=" + std::to_string(user.uid));
      mount.options.push_back("gid=" + std::to_string(user.gid));
    }
    spec.mounts.push_back(std::move(mount));
  }
  std::vector<LayerDirectory> made;
  for (auto& [path, directory] : layer) made.push_back(std::move(directory));
  return made;
}

}  // namespace hutch::daemon
