// The hardened container spec every sandbox starts from; what a request or template changes is
// changed in the result.
#pragma once

#include "oci/runtime_spec.h"

namespace hutch::runtime {

// user 1000:1000, cwd /workspace, env LANG TZ HOME PATH USER, no capabilities, no_new_privileges,
// rlimits of docs/security.md, read-only root; mounts: /proc (proc:
// subset=honest,hidepid=invisible), tmpfs at /tmp /run /var/tmp /dev/shm /workspace /home/sandbox
// (all of them on one scratch file system); memory 512 MiB, no swap, pids 256, 1 CPU.
oci::Spec DefaultSpec();

// proc = "pids": processes and nothing else.
void UsePidsProc(oci::Spec& spec);

// relax.proc = "full": the whole procfs with the masked and read-only paths every runtime uses.
void UseFullProc(oci::Spec& spec);

// user: "root": uid 0 of the sandbox's own user namespace with the seven capabilities of
// docs/security.md; HOME=/root.
void UseRootUser(oci::Spec& spec);

}  // namespace hutch::runtime
