// An unpacked layer as a tar again, for other programs: whiteouts and opaque directories get their
// .wh. names back, holes stay holes, and owners, modes, times in ns and user attributes are as they
// were unpacked. Not the bytes the layer came as, but the same each time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "rootfs/changes.h"
#include "rootfs/lower_layers.h"
#include "rootfs/tar_stream.h"

namespace hutch::rootfs {

// Borrows layer_fd, the layer's fs/ (O_PATH is enough): immutable, reachable for root alone. What
// is in it is untrusted: each name is opened below its directory, no link is followed, nothing but
// regular files is read. Memory: one name list for each level, and a path for each file of several
// links, kMaxSavedNameBytes together: kTooLarge. kUnsupported for names that mean something else in
// a layer (".wh."), kCorrupt when a file is not as long as it says, kKernel; and what the sink
// says.
Status WriteLayerTar(int layer_fd, const ByteSink& sink);

// Entries that a layer cannot hold, by the path inside and why.
struct SkippedFiles {
  uint64_t count = 0;
  std::vector<std::pair<std::string, const char*>> examples;  // the first kSkippedExamples
};

// What a sandbox wrote, to be a layer over those it was made of.
struct ScratchTar {
  int scratch_fd = -1;  // root of the scratch file system; borrowed
  std::span<const TrackedRoot> roots;
  const LowerLayers& lower;    // what is below the upper, for the owners of directories above roots
  uint32_t host_id_start = 0;  // of the sandbox
};

// Those that are sealed: all but /run and the live files of /proc, "/" first.
std::vector<TrackedRoot> SealedRoots(std::span<const TrackedRoot> roots);
// As WriteLayerTar; the upper as a layer, the others as directories that hide what is below them.
// Nothing may write meanwhile: the sandbox is frozen, or gone. Everything in it is the tenant's.
// Sockets, devices, names that begin with ".wh." and attributes that no tar can name are left out
// and told. kCorrupt for an owner outside the sandbox's ids.
Status WriteScratchTar(const ScratchTar& scratch, const ByteSink& sink, SkippedFiles* skipped);
// The same of a directory that others write to meanwhile: names and marks mean nothing but
// themselves, sockets and devices are left out, what is gone when it is its turn is left out, and a
// file that becomes shorter while it is read is filled up with zeros.
Status WriteTreeTar(int root_fd, const ByteSink& sink);

}  // namespace hutch::rootfs
