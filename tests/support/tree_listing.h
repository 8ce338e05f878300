// A directory tree as text, so that two can be compared.
#pragma once

#include <string>
#include <vector>

namespace hutch {

// One line an entry, sorted by path: type, mode, owner, size, mtime in ns, link target, hash of the
// content, number of links (files), extended attributes. The root itself is ".".
std::vector<std::string> ListTree(const std::string& root);

}  // namespace hutch
