// JSON as people write it for editors and devcontainer.json: with comments and trailing commas.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hutch::oci {

// The same text with spaces in place of "//" and "/* */" comments, of a byte order mark at the
// beginning and of a comma behind the last member or item, so that positions in later errors still
// hold. What stands in strings is left alone. kTooLarge for more than max_bytes; kInvalidArgument
// for a comment without an end. Everything else that is no JSON is left to ParseJson().
Result<std::string> JsoncToJson(std::string_view text, size_t max_bytes);

}  // namespace hutch::oci
