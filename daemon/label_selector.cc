#include "daemon/label_selector.h"

namespace hutch::daemon {

bool LabelSelector::Fits(const std::map<std::string, std::string>& labels) const {
  const auto it = labels.find(key);
  switch (kind) {
    case Kind::kEquals:
      return it != labels.end() && it->second == value;
    case Kind::kDiffers:
      return it == labels.end() || it->second != value;
    case Kind::kHas:
      return it != labels.end();
    case Kind::kLacks:
      return it == labels.end();
  }
  return false;
}

Result<LabelSelector> ParseLabelSelector(std::string_view text) {
  using Kind = LabelSelector::Kind;
  LabelSelector selector;
  const size_t equals = text.find('=');
  std::string_view key = text.substr(0, equals);
  if (equals == std::string_view::npos) {
    const bool lacks = key.starts_with('!');
    if (lacks) key.remove_prefix(1);
    selector.kind = lacks ? Kind::kLacks : Kind::kHas;
  } else {
    std::string_view value = text.substr(equals + 1);
    selector.kind = Kind::kEquals;
    if (key.ends_with('!')) {
      key.remove_suffix(1);
      selector.kind = Kind::kDiffers;
    } else if (value.starts_with('=')) {
      value.remove_prefix(1);
    }
    selector.value = value;
  }
  if (key.empty())
    return Error{.code = Code::kInvalidArgument,
                 .what = "must be KEY=VALUE, KEY!=VALUE, KEY or !KEY",
                 .field = "label"};
  selector.key = key;
  return selector;
}

}  // namespace hutch::daemon
