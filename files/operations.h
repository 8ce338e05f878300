// The operations on files: one row each in operations.cc. They run as an ordinary process of the
// sandbox's user and resolve every path with that user's rights; there is nothing to protect but
// the user's own files from half-done work.
#pragma once

#include <string_view>

#include "base/result.h"
#include "files/channels.h"
#include "oci/json.h"

namespace hutch::files {

// An operation reads its members from the request, refuses unknown ones, and answers on io.reply:
// at least one {"ok": ...}, or returns the error for RunRequest to write.
using Operation = Status (*)(const oci::Json& request, Io& io);

Status Stat(const oci::Json& request, Io& io);
Status Read(const oci::Json& request, Io& io);
Status Write(const oci::Json& request, Io& io);
Status List(const oci::Json& request, Io& io);
Status Glob(const oci::Json& request, Io& io);
Status Grep(const oci::Json& request, Io& io);
Status Delete(const oci::Json& request, Io& io);
Status MakeDirectory(const oci::Json& request, Io& io);
Status Move(const oci::Json& request, Io& io);
Status Copy(const oci::Json& request, Io& io);
Status Edit(const oci::Json& request, Io& io);
Status Pack(const oci::Json& request, Io& io);
Status Unpack(const oci::Json& request, Io& io);
Status Watch(const oci::Json& request, Io& io);
Status BatchRead(const oci::Json& request, Io& io);
Status BatchWrite(const oci::Json& request, Io& io);

// Runs one request, its JSON given as text, or read from io.in where the text is "-". Whatever the
// text, the last line of the answer is {"ok"}, {"done"} or {"error"}. Returns 0, or 1 for an error.
int RunRequest(std::string_view text, Io& io);

// Begins reading a request's members; "op" is known.
oci::ObjectReader Members(const oci::Json& request);

}  // namespace hutch::files
