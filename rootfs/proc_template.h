// Fills the part of the templates that goes over files of a sandbox's /proc.
#pragma once

#include "base/result.h"

namespace hutch::rootfs {

// Makes kProcTemplate below a directory, readable by all: kProcTexts, and sys/ with the host's
// values of kProcSettings and an empty kProcUuid. kKernel.
Status FillProcTemplate(int directory_fd);

}  // namespace hutch::rootfs
