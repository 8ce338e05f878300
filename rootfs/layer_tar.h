// An unpacked layer as a tar again, for other programs: whiteouts and opaque directories get their
// .wh. names back, holes stay holes, and owners, modes, times in ns and user attributes are as they
// were unpacked. Not the bytes the layer came as, but the same each time.
#pragma once

#include "base/result.h"
#include "rootfs/tar_stream.h"

namespace hutch::rootfs {

// Borrows layer_fd, the layer's fs/ (O_PATH is enough): immutable, reachable for root alone. What
// is in it is untrusted: each name is opened below its directory, no link is followed, nothing but
// regular files is read. Memory: one name list for each level, and a path for each file of several
// links, kMaxSavedNameBytes together: kTooLarge. kUnsupported for names that mean something else in
// a layer (".wh."), kCorrupt when a file is not as long as it says, kKernel; and what the sink
// says.
Status WriteLayerTar(int layer_fd, const ByteSink& sink);

// The same of a directory that others write to meanwhile: names and marks mean nothing but
// themselves, sockets and devices are left out, what is gone when it is its turn is left out, and a
// file that becomes shorter while it is read is filled up with zeros.
Status WriteTreeTar(int root_fd, const ByteSink& sink);

}  // namespace hutch::rootfs
