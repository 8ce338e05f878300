// One creation of a container, as the rows of its table see it.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/pidfd.h"
#include "base/unique_fd.h"
#include "cgroups/container_group.h"
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
  UniqueFd console, pidfd_receiver, sync, terminal;
  Pidfd init;
  cgroups::BornIn born_in = cgroups::BornIn::kElsewhere;
  bool hooks_begun = false;
};

std::span<const StepRow<ContainerCreation>> ContainerSteps();

}  // namespace hutch::runtime
