#include "tools/bench/rootfs_maker.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "base/file.h"
#include "base/text.h"
#include "oci/json.h"
#include "tools/process.h"

namespace hutch::tools {
namespace {

constexpr size_t kMaxIndexBytes = size_t{1} << 20, kMaxBusyboxBytes = size_t{16} << 20;

Status RunOrFail(const std::vector<std::string>& argv) {
  ASSIGN_OR_RETURN(const Finished finished, RunToEnd(argv));
  if (finished.exit_code == 0) return OkStatus();
  return Error{.code = Code::kUnavailable,
               .what = argv[0] + " " + argv[1] + ": " + std::string(Trim(finished.output))};
}

// The tag that umoci wants: the first reference name of the index.
Result<std::string> TagOf(const std::string& layout) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(layout + "/index.json", kMaxIndexBytes));
  ASSIGN_OR_RETURN(const oci::Json index, oci::ParseJson(text));
  const oci::Json::json_pointer name("/manifests/0/annotations/org.opencontainers.image.ref.name");
  if (index.contains(name) && index[name].is_string()) return index[name].get<std::string>();
  return Error{.code = Code::kInvalidArgument,
               .what = layout + ": its first manifest has no reference name"};
}

}  // namespace

Result<WorkDirectory> WorkDirectory::Make(const std::string& parent) {
  std::string path = parent + "/hutch-bench-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) return SysError(errno, "make a directory in " + parent);
  WorkDirectory made(path);
  if (::chmod(path.c_str(), 0755) != 0) return SysError(errno, path);
  return made;
}

WorkDirectory::~WorkDirectory() {
  if (!path_.empty()) IgnoreError(RemoveTree(path_), "a leftover directory harms nobody");
}

Result<std::string> UnpackLayout(const std::string& layout, const std::string& work) {
  ASSIGN_OR_RETURN(const std::string tag, TagOf(layout));
  const std::string bundle = work + "/unpacked";
  RETURN_IF_ERROR(RunOrFail({"umoci", "unpack", "--image", layout + ":" + tag, bundle}));
  if (::chmod(bundle.c_str(), 0755) != 0) return SysError(errno, bundle);
  return bundle + "/rootfs";
}

Result<std::string> MakeBusyboxRootfs(const std::string& work) {
  const std::string rootfs = work + "/rootfs";
  for (const char* name : {"/bin", "/proc", "/dev", "/sys", "/tmp", "/etc"})
    RETURN_IF_ERROR(MakeDirectories(rootfs + name, 0755));
  Result<std::string> program = Error{.code = Code::kNotFound, .what = "no busybox"};
  for (const char* path : {"/usr/bin/busybox", "/bin/busybox"})
    if (!program) program = ReadFile(path, kMaxBusyboxBytes);
  if (!program)
    return Error{.code = Code::kNotFound,
                 .what = "no busybox for a root file system",
                 .hint = "apt-get install busybox-static, or give --rootfs or --image-layout"};
  ASSIGN_OR_RETURN(const UniqueFd file, Open(rootfs + "/bin/busybox", O_WRONLY | O_CREAT, 0755));
  RETURN_IF_ERROR(WriteAll(file.get(), *program));
  for (const char* name : {"true", "sh", "sleep", "cat", "echo", "rm"})
    if (::symlink("busybox", (rootfs + "/bin/" + name).c_str()) != 0)
      return SysError(errno, rootfs + "/bin/" + name);
  return rootfs;
}

Result<std::string> MakeLayout(const std::string& rootfs, const std::string& work) {
  const std::string layout = work + "/layout", image = layout + ":latest";
  RETURN_IF_ERROR(RunOrFail({"umoci", "init", "--layout", layout}));
  RETURN_IF_ERROR(RunOrFail({"umoci", "new", "--image", image}));
  RETURN_IF_ERROR(RunOrFail({"umoci", "insert", "--image", image, rootfs, "/"}));
  return layout;
}

}  // namespace hutch::tools
