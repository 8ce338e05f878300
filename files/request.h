// Reading a request's JSON: paths, modes, and what every operation shares.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/result.h"
#include "oci/json.h"

namespace hutch::files {

// The member `name`, or the bytes of `name`_base64 where a path is no UTF-8: absolute, without a
// NUL byte, at most kMaxPathBytes. A missing one is an error, too.
void ReadPath(oci::ObjectReader& reader, const std::string& name, std::string* path);
// "0644": permissions in octal, up to 0777. Absent: untouched.
void ReadMode(oci::ObjectReader& reader, const char* name, std::optional<mode_t>* mode);
// The text of `name`, or the bytes of `name`_base64; exactly one must be there.
void ReadContent(oci::ObjectReader& reader, const std::string& name, std::string* content);

// {"<name>": path}, or {"<name>_base64": ...} where the path is no UTF-8.
void PutPath(oci::Json& object, const std::string& name, const std::string& path);

// "a/b" of a directory and a name; the directory may be "" or end with a slash.
std::string JoinPath(const std::string& directory, const std::string& name);
// The directory part ("/" or "." when there is none) and the last component.
std::string DirectoryOf(const std::string& path);
std::string NameOf(const std::string& path);

}  // namespace hutch::files
