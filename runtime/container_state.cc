#include "runtime/container_state.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>

#include "base/file.h"
#include "base/text.h"

namespace hutch::runtime {
namespace {

constexpr size_t kMaxIdBytes = 1024;  // runc has no limit but that of file names
constexpr size_t kMaxRecordBytes = 4u << 20;
constexpr size_t kMaxConfigBytes = 16u << 20;
constexpr char kStateFile[] = "state.json";
constexpr char kConfigFile[] = "config.json";
constexpr char kGate[] = "start";
// Behind the command's ')': fields 20 and 22 of proc_pid_stat(5).
constexpr size_t kThreadsField = 17, kStartTimeField = 19;

Error NoContainer(const std::string& id) {
  return Error{.code = Code::kNotFound, .what = "container \"" + id + "\" does not exist"};
}

Result<UniqueFd> GateSocket() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return SysError(errno, "socket");
  return fd;
}

// By the directory's descriptor: paths of sockets are short, those of containers need not be.
sockaddr_un GateAddress(int dir_fd) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = "/proc/self/fd/" + std::to_string(dir_fd) + "/" + kGate;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof address.sun_path - 1));
  return address;
}

Result<oci::Json> ReadJson(const std::string& path, size_t max_bytes) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, max_bytes));
  return oci::ParseJson(text, {.max_bytes = max_bytes});
}

}  // namespace

const char* ContainerStatusName(ContainerStatus status) {
  constexpr const char* kNames[] = {"creating", "created", "running", "paused", "stopped"};
  return kNames[static_cast<size_t>(status)];
}

Status CheckContainerId(std::string_view id) {
  const size_t bad = id.find_first_not_of(
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
      "0123456789_+-.");
  if (!id.empty() && id.size() <= kMaxIdBytes && id != "." && id != ".." &&
      bad == std::string_view::npos)
    return OkStatus();
  Error error{.code = Code::kInvalidArgument,
              .what = "invalid container ID format: \"" + std::string(id) + "\""};
  if (bad != std::string_view::npos)
    error.what += ": invalid character `" + std::string(id.substr(bad, 1)) + "` in container ID";
  return error;
}

Result<uint64_t> ProcessStartTime(pid_t pid) {
  const Error gone{.code = Code::kNotFound, .what = "no process " + std::to_string(pid)};
  if (pid <= 0) return gone;
  const Result<std::string> text = ReadFile("/proc/" + std::to_string(pid) + "/stat", 4096);
  if (!text) return gone;
  const size_t end = text->rfind(')');
  if (end == std::string::npos || end + 2 >= text->size()) return gone;
  const std::vector<std::string> fields = Split(std::string_view(*text).substr(end + 2), ' ');
  if (fields.size() <= kStartTimeField || fields[0] == "X") return gone;
  // A program may end its first thread alone: the others live on.
  if (fields[0] == "Z" && fields[kThreadsField] == "1") return gone;
  return ParseUint(fields[kStartTimeField]);
}

bool FirstProcessLives(const ContainerRecord& record) {
  const Result<uint64_t> start = ProcessStartTime(record.pid);
  return start && *start == record.start_time;
}

Result<Pidfd> OpenFirstProcess(const ContainerRecord& record) {
  ASSIGN_OR_RETURN(Pidfd process, Pidfd::Open(record.pid));
  // Between a look and the open the pid may have become another's.
  if (!FirstProcessLives(record))
    return Error{.code = Code::kNotFound, .what = "container not running"};
  return process;
}

Result<ContainerDirectory> ContainerDirectory::Make(const std::string& root,
                                                    const std::string& id) {
  RETURN_IF_ERROR(MakeDirectories(root, 0700));
  const std::string path = root + "/" + id;
  if (::mkdir(path.c_str(), 0700) != 0) {
    if (errno == EEXIST)
      return Error{.code = Code::kExists, .what = "container with given ID already exists"};
    return SysError(errno, "mkdir " + path);
  }
  return Open(root, id, Lock::kExclusive);
}

Result<ContainerDirectory> ContainerDirectory::Open(const std::string& root, const std::string& id,
                                                    Lock lock) {
  RETURN_IF_ERROR(CheckContainerId(id));
  std::string path = root + "/" + id;
  while (true) {
    Result<UniqueFd> fd = hutch::Open(path, O_RDONLY | O_DIRECTORY);
    if (!fd) {
      if (fd.error().code == Code::kNotFound) return NoContainer(id);
      return std::move(fd).error();
    }
    while (lock == Lock::kExclusive && ::flock(fd->get(), LOCK_EX) != 0)
      if (errno != EINTR) return SysError(errno, "lock " + path);
    struct stat locked, there;
    if (::fstat(fd->get(), &locked) != 0) return SysError(errno, path);
    if (::stat(path.c_str(), &there) != 0) return NoContainer(id);  // removed by who had the lock
    // Another one of this name may have been made since: its lock is another one, too.
    if (locked.st_dev == there.st_dev && locked.st_ino == there.st_ino)
      return ContainerDirectory(std::move(path), std::move(*fd));
  }
}

Result<ContainerRecord> ContainerDirectory::ReadRecord() const {
  Result<oci::Json> json = ReadJson(path_ + "/" + kStateFile, kMaxRecordBytes);
  if (!json) {
    if (json.error().code == Code::kNotFound)
      return NoContainer(path_.substr(path_.rfind('/') + 1));
    return std::move(json).error();
  }
  ContainerRecord record;
  uint64_t pid = 0, owner = 0;
  oci::ObjectReader reader(*json, "");
  reader.String("ociVersion", &record.oci_version)
      .String("id", &record.id)
      .String("bundle", &record.bundle)
      .String("rootfs", &record.rootfs)
      .String("created", &record.created)
      .Uint("owner", &owner, 0, UINT32_MAX)
      .Uint("pid", &pid, 0, INT32_MAX)
      .Uint("start_time", &record.start_time)
      .Bool("systemd_cgroup", &record.systemd_cgroup)
      .StringMap("annotations", &record.annotations);
  if (const oci::Json* group = reader.Member("group")) record.group = *group;
  RETURN_IF_ERROR(reader.Done(oci::ObjectReader::Unknown::kIgnore));
  record.pid = static_cast<pid_t>(pid);
  record.owner = static_cast<uint32_t>(owner);
  return record;
}

Status ContainerDirectory::WriteRecord(const ContainerRecord& r) const {
  const oci::Json json = {{"ociVersion", r.oci_version},
                          {"id", r.id},
                          {"bundle", r.bundle},
                          {"rootfs", r.rootfs},
                          {"created", r.created},
                          {"owner", r.owner},
                          {"pid", r.pid},
                          {"start_time", r.start_time},
                          {"systemd_cgroup", r.systemd_cgroup},
                          {"group", r.group},
                          {"annotations", r.annotations}};
  return WriteFileAtomic(path_ + "/" + kStateFile, oci::PrintJson(json), Durability::kMemory);
}

Result<std::optional<cgroups::ContainerGroup>> GroupOf(const ContainerRecord& record) {
  if (!record.group.is_object()) return std::optional<cgroups::ContainerGroup>();
  ASSIGN_OR_RETURN(const cgroups::GroupPlace place, cgroups::ParseGroupPlace(record.group));
  ASSIGN_OR_RETURN(cgroups::ContainerGroup group, cgroups::ContainerGroup::Open(place));
  return std::optional<cgroups::ContainerGroup>(std::move(group));
}

std::string ConfigFileOf(const std::string& root, const std::string& id) {
  return CheckContainerId(id) ? root + "/" + id + "/" + kConfigFile : "";
}

Result<std::string> ContainerDirectory::ReadConfig() const {
  return ReadFile(path_ + "/" + kConfigFile, kMaxConfigBytes);
}

Status ContainerDirectory::WriteConfig(std::string_view text) const {
  return WriteFileAtomic(path_ + "/" + kConfigFile, text, Durability::kMemory);
}

Result<UniqueFd> ContainerDirectory::ListenAtGate() const {
  ASSIGN_OR_RETURN(UniqueFd fd, GateSocket());
  const sockaddr_un address = GateAddress(fd_.get());
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return SysError(errno, "bind the start gate");
  if (::listen(fd.get(), 1) != 0) return SysError(errno, "listen at the start gate");
  return fd;
}

Result<UniqueFd> ContainerDirectory::ConnectToGate() const {
  ASSIGN_OR_RETURN(UniqueFd fd, GateSocket());
  const sockaddr_un address = GateAddress(fd_.get());
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    return fd;
  Error error = SysError(errno, "connect to the start gate");
  if (error.sys == ENOENT) error.code = Code::kNotFound;
  if (error.sys == ECONNREFUSED) error.code = Code::kBadState;
  return error;
}

bool ContainerDirectory::HasGate() const { return PathExists(path_ + "/" + kGate); }

Status ContainerDirectory::RemoveGate() const {
  if (::unlinkat(fd_.get(), kGate, 0) == 0 || errno == ENOENT) return OkStatus();
  return SysError(errno, "remove the start gate");
}

void ContainerDirectory::Unlock() const { ::flock(fd_.get(), LOCK_UN); }

Status ContainerDirectory::Remove() const { return RemoveTree(path_); }

Result<std::vector<std::string>> ListContainers(const std::string& root) {
  Result<std::vector<std::string>> names = ListDirectory(root);
  if (!names) {
    if (names.error().code == Code::kNotFound) return std::vector<std::string>{};
    return std::move(names).error();
  }
  std::erase_if(*names, [](const std::string& name) { return !CheckContainerId(name); });
  return names;
}

oci::Json StateDocument(const ContainerRecord& record, ContainerStatus status) {
  oci::Json json = {{"ociVersion", record.oci_version},
                    {"id", record.id},
                    {"pid", status == ContainerStatus::kStopped ? 0 : record.pid},
                    {"status", ContainerStatusName(status)},
                    {"bundle", record.bundle},
                    {"rootfs", record.rootfs},
                    {"created", record.created},
                    {"owner", ""}};
  if (!record.annotations.empty()) json["annotations"] = record.annotations;
  return json;
}

}  // namespace hutch::runtime
