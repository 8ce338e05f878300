// What the create tables work on. A Shell is a sandbox that does not know yet what it will be (a
// blank): it depends on no request. A Creation gives it a request.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/pidfd.h"
#include "base/unique_fd.h"
#include "cgroups/tree.h"
#include "network/netns.h"
#include "rootfs/mount_planner.h"
#include "rootfs/overlay.h"
#include "runtime/host_ids.h"
#include "runtime/runtime.h"
#include "runtime/scratch_view.h"
#include "runtime/spawner.h"
#include "runtime/steps.h"
#include "seccomp/filters.h"

namespace hutch::runtime {

// Of a socket to an agent: above kMaxStartBytes with the kernel's overhead.
inline constexpr int kSocketBufferBytes = 512 * 1024;

// What all creations share; owned by the runtime, outlives every Shell.
struct Workshop {
  std::string sandboxes_dir;  // <run_dir>/sandboxes
  std::string stage_dir;      // a directory to attach file systems at for a moment
                              // (rootfs::LayerPassing::kPaths)
  const cgroups::Tree* tree = nullptr;
  Spawner spawner;
  std::unique_ptr<network::NetnsPool> netns_pool;
  HostIds host_ids{0, 0};
  std::optional<rootfs::Templates> templates;
  rootfs::LayerPassing layer_passing = rootfs::LayerPassing::kDescriptors;
  uint64_t next_spawn_number = 1;
};

struct Shell {
  Workshop* workshop = nullptr;
  std::string id;
  uint64_t spawn_number = 0;
  uint32_t host_id_start = 0;  // 0: none
  bool has_cgroups = false;
  cgroups::SandboxGroup group;
  UniqueFd directory;                        // <sandboxes_dir>/<id>
  UniqueFd conn;                             // our end of the socket to the agent
  UniqueFd conn_child, listen_child, netns;  // until the clone
  std::optional<rootfs::Scratch> scratch;    // until the plan is sent
  ScratchView scratch_view;                  // from then on
  Pidfd init;                                // once spawned
  UniqueFd proc_files;                       // directory of /proc's live files, from the plan on
  UniqueFd userns;                           // once spawned, until the root is built
  std::vector<Timing> timings;

  std::string DirectoryPath() const { return workshop->sandboxes_dir + "/" + id; }
};

struct Creation {
  Shell* shell;
  CreateRequest request;
  rootfs::MountPlan mounts;
  seccomp::SharedFilters filters;
  std::string plan;
  UniqueFd root;
  std::vector<UniqueFd> volumes;  // through the sandbox's id map
};

inline constexpr uint64_t kBlankScratchBytes =
    512u << 20;  // what a blank's scratch is made with; resized where a request differs

// Makes a shell up to the request to the spawn server. The undo column is also delete and recovery.
std::span<const StepRow<Shell>> ShellSteps();
// Pure checks of a request, before a shell is touched.
Status CheckSpec(Creation& creation);
// Turns a spawned shell into the sandbox, up to the plan on its way to the agent.
std::span<const StepRow<Creation>> CreateSteps();
inline constexpr size_t kStepsUpToFill = 3;  // of those, "put files back" included

}  // namespace hutch::runtime
