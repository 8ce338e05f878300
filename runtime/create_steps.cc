// The create tables. Order matters; each comment says what breaks if the row moves.
// docs/architecture.md has a copy that is tested.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>

#include "base/fd_socket.h"
#include "base/file.h"
#include "rootfs/proc_files.h"
#include "runtime/agent_messages.h"
#include "runtime/creation.h"
#include "runtime/spawn_protocol.h"

namespace hutch::runtime {
namespace {

using rootfs::kUpperName;
using rootfs::kWorkName;

Status ReserveStateDir(Shell& s) {
  const std::string path = s.DirectoryPath();
  if (::mkdir(path.c_str(), 0700) != 0) {
    Error error = SysError(errno, "mkdir " + path);
    if (error.sys == EEXIST) error.code = Code::kExists;
    return error;
  }
  ASSIGN_OR_RETURN(s.directory, Open(path, O_RDONLY | O_DIRECTORY));
  return OkStatus();
}

Status RemoveStateDir(Shell& s) { return RemoveTree(s.DirectoryPath()); }

Status ReserveHostIds(Shell& s) {
  ASSIGN_OR_RETURN(s.host_id_start, s.workshop->host_ids.Take());
  return OkStatus();
}

Status ReleaseHostIds(Shell& s) {
  if (s.host_id_start != 0) s.workshop->host_ids.Release(s.host_id_start);
  s.host_id_start = 0;
  return OkStatus();
}

Status CreateCgroups(Shell& s) {
  ASSIGN_OR_RETURN(s.group, s.workshop->tree->Create(s.id));
  s.has_cgroups = true;
  return s.group.DelegateTo(s.host_id_start);
}

Status RemoveCgroups(Shell& s) {
  if (!s.has_cgroups) return OkStatus();
  RETURN_IF_ERROR(s.group.Remove());
  s.has_cgroups = false;
  return OkStatus();
}

// Bound here, listened on by the agent, so that its peers see the agent's credentials. The path
// goes through the directory's descriptor: sun_path holds 108 bytes.
Status OpenAgentSocket(Shell& s) {
  ASSIGN_OR_RETURN(SocketPair pair, MakeSeqpacketPair());
  s.conn = std::move(pair.a);
  s.conn_child = std::move(pair.b);
  // Best effort: SO_SNDBUF's own ceiling then bounds a start message, and sending says so.
  ::setsockopt(s.conn.get(), SOL_SOCKET, SO_SNDBUFFORCE, &kSocketBufferBytes,
               sizeof kSocketBufferBytes);
  s.listen_child.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!s.listen_child.valid()) return SysError(errno, "socket for the agent");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = "/proc/self/fd/" + std::to_string(s.directory.get()) + "/agent.sock";
  std::memcpy(address.sun_path, path.data(), path.size());
  if (::bind(s.listen_child.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
      0)
    return SysError(errno, "bind " + s.DirectoryPath() + "/agent.sock");
  return OkStatus();
}

Status TakeNetwork(Shell& s) {
  ASSIGN_OR_RETURN(s.netns, s.workshop->netns_pool->Take());
  return OkStatus();
}

Status MakeScratch(Shell& s) {
  ASSIGN_OR_RETURN(s.scratch, rootfs::Scratch::Make(kBlankScratchBytes));
  return s.scratch->MakeProcFiles();
}

Status RequestClone(Shell& s) {
  s.spawn_number = s.workshop->next_spawn_number++;
  ASSIGN_OR_RETURN(const std::vector<UniqueFd> v1_procs, s.group.OpenAttachFiles());
  const SpawnOrder order{
      s.spawn_number,     s.host_id_start,      s.id,          s.group.agent_fd(),
      s.conn_child.get(), s.listen_child.get(), s.netns.get(), v1_procs};
  RETURN_IF_ERROR(s.workshop->spawner.Send(order));
  s.conn_child.reset();
  s.listen_child.reset();
  s.netns.reset();
  return OkStatus();
}

// The cgroup, not the pid: whatever the sandbox started goes with it.
Status KillAll(Shell& s) {
  s.scratch.reset();
  s.proc_files.reset();
  s.scratch_view.fd.reset();
  s.conn.reset();
  return s.has_cgroups ? s.group.Kill() : OkStatus();
}

constexpr StepRow<Shell> kShellSteps[] = {
    {"reserve id", ReserveStateDir,
     RemoveStateDir},  // exclusive; a directory without a state file is half-made
    {"reserve host ids", ReserveHostIds,
     ReleaseHostIds},  // before the cgroups: they are delegated to the range's root
    {"create cgroups", CreateCgroups, RemoveCgroups},  // before the clone: CLONE_INTO_CGROUP
    {"open agent socket", OpenAgentSocket, nullptr},   // in the state directory, goes with it
    {"take network", TakeNetwork, nullptr},    // lives as long as its descriptor or a process in it
    {"make scratch", MakeScratch, nullptr},    // detached: goes with its descriptor
    {"request clone", RequestClone, KillAll},  // last: from here on there is a process to kill
};

Status ApplyLimits(Creation& c) {
  return c.shell->group.ApplyLimits(c.request.spec.linux_.resources);
}

Status FillScratch(Creation& c) {
  rootfs::Scratch& scratch = *c.shell->scratch;
  RETURN_IF_ERROR(scratch.Resize(c.request.scratch_bytes));
  return scratch.MakeDirectories(c.mounts.scratch_directories, c.shell->host_id_start);
}

// Only begins it where there is something to put back: the rows below wait for Runtime::Filled().
Status PutFilesBack(Creation& c) {
  if (c.request.fill == nullptr) return OkStatus();
  ScratchToFill scratch{.fd = UniqueFd(),
                        .roots = rootfs::TrackedRoots(c.mounts, kUpperName),
                        .host_id_start = c.shell->host_id_start};
  ASSIGN_OR_RETURN(scratch.fd, Duplicate(c.shell->scratch->mount_fd()));
  return c.request.fill(std::move(scratch));
}

Status BuildRoot(Creation& c) {
  Shell& s = *c.shell;
  rootfs::OverlayRequest overlay;
  std::vector<int> layers;
  for (const UniqueFd& layer : c.request.layers) layers.push_back(layer.get());
  layers.push_back(s.workshop->templates->skeleton_fd());
  overlay.layers = layers;
  overlay.userns_fd = s.userns.get();
  overlay.passing = s.workshop->layer_passing;
  UniqueFd upper, work;
  const bool writable = c.mounts.root_upper;
  const bool attach = writable && overlay.passing == rootfs::LayerPassing::kPaths;
  if (writable) {
    if (attach) RETURN_IF_ERROR(s.scratch->AttachTemporarily(s.workshop->stage_dir));
    ASSIGN_OR_RETURN(upper, s.scratch->OpenDirectory(kUpperName));
    ASSIGN_OR_RETURN(work, s.scratch->OpenDirectory(kWorkName));
    overlay.upper_fd = upper.get();
    overlay.work_fd = work.get();
  }
  auto root = rootfs::BuildOverlay(overlay);
  if (attach) RETURN_IF_ERROR(s.scratch->DetachAndClone());
  ASSIGN_OR_RETURN(c.root, std::move(root));
  return OkStatus();
}

Status CloneVolumes(Creation& c) {
  for (const VolumeToShare& volume : c.request.volumes) {
    ASSIGN_OR_RETURN(UniqueFd clone,
                     rootfs::CloneVolume(volume.mount.get(), c.shell->userns.get(), volume.access));
    c.volumes.push_back(std::move(clone));
  }
  return OkStatus();
}

Status SendPlan(Creation& c) {
  Shell& s = *c.shell;
  ASSIGN_OR_RETURN(const UniqueFd mask, s.workshop->templates->CloneMask());
  ASSIGN_OR_RETURN(const UniqueFd dev, s.workshop->templates->CloneDev());
  if (c.mounts.live_proc) {
    ASSIGN_OR_RETURN(s.proc_files, s.scratch->OpenDirectory(rootfs::kProcFilesDirectory));
  }
  std::vector<int> fds(kPlanFdCount);
  fds[kPlanRootFd] = c.root.get();
  fds[kPlanScratchFd] = s.scratch->mount_fd();
  fds[kPlanMaskFd] = mask.get();
  fds[kPlanDevFd] = dev.get();
  for (const UniqueFd& volume : c.volumes) fds.push_back(volume.get());
  const std::string_view bytes(c.plan);
  RETURN_IF_ERROR(SendMessage(s.conn.get(), {&bytes, 1}, fds));
  c.root.reset();
  c.volumes.clear();
  ASSIGN_OR_RETURN(s.scratch_view.fd, Duplicate(s.scratch->mount_fd()));
  s.scratch_view.roots = rootfs::TrackedRoots(c.mounts, kUpperName);
  s.scratch.reset();  // the agent has it now
  s.userns.reset();
  return OkStatus();
}

constexpr StepRow<Creation> kCreateSteps[] = {
    {"apply limits", ApplyLimits, nullptr},     // before any tenant's process
    {"fill scratch", FillScratch, nullptr},     // upper and work directories for the next row
    {"put files back", PutFilesBack, nullptr},  // of one that was stopped; nothing sees them yet
    {"build root", BuildRoot,
     nullptr},  // needs the sandbox's id map; refused from inside the sandbox
    {"clone volumes", CloneVolumes, nullptr},  // needs the sandbox's id map, as the root does
    {"send plan", SendPlan, nullptr},  // the agent answers ready or names the step that failed
};

static_assert(std::string_view(kCreateSteps[kStepsUpToFill - 1].name) == "put files back");

}  // namespace

std::span<const StepRow<Shell>> ShellSteps() { return kShellSteps; }
std::span<const StepRow<Creation>> CreateSteps() { return kCreateSteps; }

Status CheckSpec(Creation& c) {
  oci::Spec& spec = c.request.spec;
  if (c.request.layers.empty())
    return Error{.code = Code::kInvalidArgument, .what = "an image without layers"};
  if (c.request.volumes.size() > kMaxVolumes)
    return Error{.code = Code::kLimit,
                 .what = "more than " + std::to_string(kMaxVolumes) + " volumes",
                 .field = "volumes"};
  ASSIGN_OR_RETURN(
      c.mounts,
      rootfs::PlanMounts(spec, {.dev = static_cast<uint8_t>(kPlanDevFd),
                                .first_volume = static_cast<uint8_t>(kPlanFdCount),
                                .volumes = static_cast<uint8_t>(c.request.volumes.size())}));
  if (c.mounts.root_upper) {  // first: others may be in it
    std::vector<rootfs::ScratchDirectory> first = {{kUpperName, 0755, 0, 0},
                                                   {kWorkName, 0700, 0, 0}};
    for (const rootfs::ScratchDirectory& one : c.request.upper_directories)
      first.push_back({std::string(kUpperName) + "/" + one.name, one.mode, one.uid, one.gid});
    c.mounts.scratch_directories.insert(c.mounts.scratch_directories.begin(), first.begin(),
                                        first.end());
  }
  ASSIGN_OR_RETURN(c.filters, spec.linux_.seccomp
                                  ? seccomp::CompileFilters(*spec.linux_.seccomp,
                                                            spec.process.capabilities.bounding)
                                  : seccomp::DefaultFilters());
  ASSIGN_OR_RETURN(c.plan, PrintPlan(spec, c.mounts, *c.filters));
  return OkStatus();
}

}  // namespace hutch::runtime
