// Base64 of RFC 4648 with padding, for bytes that are no UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace hutch {

std::string Base64Encode(std::string_view bytes);
// Strict: false for anything but whole groups of the alphabet with at most two "=" at the end.
bool Base64Decode(std::string_view text, std::string* bytes);

}  // namespace hutch
