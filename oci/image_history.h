// How an image came to be, as its configuration tells it (image-spec config.md, "history"): said by
// whoever built it and verified by nobody.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hutch::oci {

struct HistoryEntry {
  std::string created, created_by, author, comment;  // any may be empty
  bool empty_layer = false;                          // no layer of the image came of this step
};

// The steps of a configuration, the first one first; none where it has no history.
// kInvalidArgument for what is no configuration, more than 1024 steps or a text above 64 KiB;
// kTooLarge above 8 MiB.
Result<std::vector<HistoryEntry>> ParseImageHistory(std::string_view config);

}  // namespace hutch::oci
