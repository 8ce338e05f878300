// One creation of a container, as the rows of its table see it.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/pidfd.h"
#include "base/unique_fd.h"
#include "cgroups/container_group.h"
#include "network/device_moves.h"
#include "oci/container_config.h"
#include "rootfs/container_mounts.h"
#include "runtime/container.h"
#include "runtime/container_init.h"
#include "runtime/steps.h"

namespace hutch::runtime {

struct ContainerCreation {
  const ContainerHost* host = nullptr;
  const CreateRequest* request = nullptr;
  std::string config_text;
  oci::ContainerConfig config;
  ChildContext child;
  ContainerRecord record;
  std::optional<ContainerDirectory> directory;
  std::optional<cgroups::ContainerGroup> group;
  rootfs::PreparedContainerMounts mounts;
  std::optional<network::DeviceMoves> devices;
  UniqueFd console, sync, terminal;
  Pidfd init;
  cgroups::BornIn born_in = cgroups::BornIn::kElsewhere;
  bool hooks_begun = false;
  bool born_elsewhere = false;   // attached to its group after the clone
  bool killed_at_birth = false;  // found by the undo: another try without CLONE_INTO_CGROUP helps
};

std::span<const StepRow<ContainerCreation>> ContainerSteps();

}  // namespace hutch::runtime
