// Which sandboxes a list is of, by their labels. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hutch::daemon {

// One requirement, as Kubernetes has them: "key=value" (or "=="), "key!=value" (also of sandboxes
// without the key), "key" (it has one) and "!key" (it has none). Values may hold anything.
struct LabelSelector {
  enum class Kind { kEquals, kDiffers, kHas, kLacks };
  Kind kind = Kind::kHas;
  std::string key = {}, value = {};

  bool Fits(const std::map<std::string, std::string>& labels) const;
};

// kInvalidArgument, field "label", for one without a key.
Result<LabelSelector> ParseLabelSelector(std::string_view text);

}  // namespace hutch::daemon
