#include "runtime/container_features.h"

#include "cgroups/container_group.h"
#include "rootfs/container_mount_options.h"
#include "runtime/container_names.h"
#include "runtime/container_namespaces.h"
#include "runtime/container_scheduling.h"
#include "seccomp/custom_profile.h"

namespace hutch::runtime {
namespace {

using oci::Json;

Json SeccompFeatures() {
  const seccomp::ProfileWords words = seccomp::KnownProfileWords();
  return {{"enabled", true},
          {"actions", words.actions},
          {"operators", words.operators},
          {"archs", words.architectures},
          {"knownFlags", words.flags},
          {"supportedFlags", words.flags}};
}

Json LinuxFeatures() {
  const Json enabled = {{"enabled", true}};
  return {{"namespaces", NamespaceTypes()},
          {"capabilities", CapabilityNames()},
          {"cgroup",
           {{"v1", true}, {"v2", true}, {"systemd", true}, {"systemdUser", true}, {"rdma", true}}},
          {"seccomp", SeccompFeatures()},
          {"apparmor", enabled},
          {"selinux", enabled},
          {"memoryPolicy", {{"modes", MemoryPolicyModes()}, {"flags", MemoryPolicyFlags()}}},
          {"intelRdt", {{"enabled", false}}},
          {"mountExtensions", {{"idmap", enabled}}},
          {"netDevices", enabled}};
}

}  // namespace

Json ContainerFeatures() {
  return {
      {"ociVersionMin", kOldestOciVersion},
      {"ociVersionMax", kOciVersion},
      {"hooks",
       {"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}},
      {"mountOptions", rootfs::KnownMountOptions()},
      {"linux", LinuxFeatures()},
      {"potentiallyUnsafeConfigAnnotations", {cgroups::kScopePropertyPrefix}}};
}

}  // namespace hutch::runtime
