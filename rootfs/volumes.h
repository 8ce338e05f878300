// Volumes: named directories that outlive sandboxes, the daemon and the host. Each is
// <directory>/<name>/ with volume.json and `image`, a sparse file with ext4 that nobody but us can
// write to. What is half made or half removed has a name that begins with a dot and goes at the
// next start. The calls marked "blocks" are for worker threads; all are safe from any.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "oci/json.h"
#include "rootfs/tar_stream.h"
#include "rootfs/volume_mount.h"

namespace hutch::rootfs {

struct VolumeFacts {
  std::string name;
  uint64_t size_bytes = 0;          // of its file system
  uint32_t uid = 1000, gid = 1000;  // of its root directory when it was made, as seen inside
  std::map<std::string, std::string> labels = {};
  std::chrono::system_clock::time_point created_at = {};
};

struct VolumesOptions {
  std::string directory;                             // on disk
  std::string mounts;                                // in our own mount namespace
  std::function<void(std::function<void()>)> later;  // runs what may block, on another thread
  std::function<void(const char* step)> at = [](const char*) {};  // for tests: before each step
};

class Volumes {
 public:
  // Knows of none: Open() is what reads and mounts.
  explicit Volumes(VolumesOptions options) : options_(std::move(options)) {}
  // Call after unshare(CLONE_NEWNS). Removes what is half made, and thaws what a daemon left
  // frozen.
  static Result<std::unique_ptr<Volumes>> Open(VolumesOptions options);

  std::vector<VolumeFacts> List() const;                    // by name
  Result<VolumeFacts> Find(const std::string& name) const;  // kNotFound
  uint64_t disk_bytes(const std::string& name) const;  // that its image takes of the host's disk
  Result<VolumeMount::Use> Measure(const std::string& name) const;  // mounted or not

  // Blocks. kExists; kLimit past kMaxVolumesStored; kInvalidArgument for a size out of bounds,
  // which is rounded up to whole MiB.
  Result<VolumeFacts> Create(VolumeFacts wanted);
  // Blocks. kBadState while it is mounted for anybody.
  Status Remove(const std::string& name);
  // Blocks. Never smaller: kInvalidArgument. In use it grows live, or kUnsupported (see
  // CanGrowLive); unused with resize2fs.
  Result<VolumeFacts> Grow(const std::string& name, uint64_t size_bytes);
  // Blocks. A consistent copy of now, under another name; who writes to the volume meanwhile waits.
  using CopyProgress = std::function<void(uint64_t done, uint64_t total)>;
  Result<VolumeFacts> Copy(const std::string& from, const std::string& to,
                           const CopyProgress& progress, const std::atomic<bool>& cancelled);
  // Blocks. All of it as a tar; files that change meanwhile are as they are read.
  Status Export(const std::string& name, const ByteSink& sink);
  // Blocks. Puts what a tar (plain, gzip or zstd) holds into it, by the confined hutch-unpack;
  // reads `input_fd`, borrowed, to its end. kNoSpace when the volume is full.
  Status Import(const std::string& name, int input_fd);

  // The mount of a volume, shared by all who hold it; the last one to let go detaches it, later.
  // Blocks when nobody holds it yet. kNotFound; kUnavailable.
  Result<std::shared_ptr<VolumeMount>> Attach(const std::string& name);
  std::shared_ptr<VolumeMount> Attached(const std::string& name) const;  // or nullptr; at once

  // What may be a volume's name: [a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}.
  static bool IsName(const std::string& name);

 private:
  struct Entry {
    VolumeFacts facts;
    std::weak_ptr<VolumeMount> mount = {};
  };

  Status Sweep();
  Status Load();
  void ThawLeftovers();
  std::string PathOf(const std::string& name) const { return options_.directory + "/" + name; }
  std::string NewPath(const char* prefix);
  Status CheckNew(const std::string& name) const;
  Status Fill(const std::string& path, const VolumeFacts& facts);
  Result<VolumeFacts> Publish(const std::string& path, VolumeFacts facts);
  Status GrowOffline(const std::string& image, uint64_t size_bytes);
  Status CopyImage(const std::string& from, const std::string& to, const CopyProgress& progress,
                   const std::atomic<bool>& cancelled);
  Result<VolumeFacts> Reread(const std::string& name);
  Result<std::shared_ptr<VolumeMount>> AttachLocked(const std::string& name);

  const VolumesOptions options_;
  std::mutex image_;          // of what needs an image at rest: taken before work_
  std::mutex work_;           // of all that makes, removes and mounts
  mutable std::mutex mutex_;  // of what follows; never held for long
  std::map<std::string, Entry> entries_;
  std::atomic<uint64_t> serial_{0};
};

// Bytes of the ext4 file system in an image, from its superblock. kCorrupt when there is none.
Result<uint64_t> FilesystemBytes(int image_fd);
// How full it was when it was last unmounted, or its superblock last written.
Result<VolumeMount::Use> FilesystemUse(int image_fd);

// Runs hutch-volume (rootfs/volume_tool/): e2fsprogs, confined to one image.
enum class VolumeTool { kMake, kCheck, kGrow };
Status RunVolumeTool(VolumeTool tool, const std::string& image, int image_fd,
                     const std::vector<std::string>& arguments);

}  // namespace hutch::rootfs
