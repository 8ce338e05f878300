// Base64 of RFC 4648 with padding: for output and input that is not UTF-8.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace hutch::tools {

std::string EncodeBase64(std::string_view bytes);
// kInvalidArgument for a foreign character, a wrong length or misplaced padding.
Result<std::string> DecodeBase64(std::string_view text);

}  // namespace hutch::tools
