// Directories of which an image says that a sandbox's files are in it: there a sandbox gets no
// empty directory, but a writable view of what the image has.
#pragma once

#include <set>
#include <string>

#include "base/result.h"
#include "oci/image_spec.h"
#include "runtime/runtime.h"

namespace hutch::daemon {

// A label of the image's configuration: a JSON list of absolute paths.
inline constexpr char kSealedLabel[] = "hutch.snapshot.directories";

// What the label lists; empty without one. kInvalidArgument, field "image", for a label that is not
// such a list: anybody may have made the image.
Result<std::set<std::string>> SealedDirectories(const oci::ImageConfig& image);
std::string SealedLabelText(const std::set<std::string>& directories);

// Of the tmpfs mounts in the request's spec those that the label lists become mounts of type
// "root", where the image has a directory there; one below such a mount that the image has goes.
// Nothing becomes writable that was not. Adds to upper_directories what keeps their owners and
// modes. The request's layers are complete.
Status UseSealedDirectories(const oci::ImageConfig& image, runtime::CreateRequest& request);

}  // namespace hutch::daemon
